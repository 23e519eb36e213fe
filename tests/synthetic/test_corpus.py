"""A corpus translated: one line for every line, all that is counted, and kills at every moment."""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config.schema import DecodingConfig
from nmt.data.text import Policy
from nmt.errors import ConfigError, DataError
from nmt.search.values import AT_LIMIT, NOT_FINITE
from nmt.synthetic.corpus import Output, Progress, Work, translate_corpus
from nmt.synthetic.texts import Made, Texts

LINES = [f"line {number}" for number in range(11)] + ["", "fails", "   ", "too long", "\u2028 one line"]


def upper(lines: Sequence[str]) -> list[Made]:
    """A model that writes in capitals, and fails as it is asked to."""
    notes = {"fails": (NOT_FINITE,), "too long": (AT_LIMIT,)}
    texts = ["" if line == "fails" or not line.strip() else line.upper() for line in lines]
    return [
        Made([text, text[:3]], [text, text[:3]], notes.get(line, ()), len(line.split()))
        for line, text in zip(lines, texts, strict=True)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").write_bytes(b"weights")
    (tmp_path / "text.en.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in LINES).encode()))
    (tmp_path / "text.de").write_text("".join(f"{line.swapcase()}\n" for line in LINES), encoding="utf-8")
    (tmp_path / "more").write_text("more\r\nand more", encoding="utf-8")
    return tmp_path


def work_of(
    folder: Path,
    *,
    n_best: int = 1,
    nearest: str | None = None,
    keep_original: bool = False,
    errors: Policy = "strict",
    **decoding: object,
) -> Work:
    found = [(folder / "text.en.gz", folder / "text.de"), (folder / "more", None)]
    search = DecodingConfig(beam_size=4, n_best=n_best, **decoding)  # type: ignore[arg-type]
    return Work(
        Texts(found, policy=errors),
        [folder / "model"],
        search,
        ("en", "de"),
        nearest=nearest,
        keep_original=keep_original,
        errors=errors,
    )


def make(
    work: Work,
    prefix: Path,
    *,
    translate: Callable[[Sequence[str]], Sequence[Made]] = upper,
    window: int = 3,
    overwrite: bool = False,
) -> Progress:
    output = Output(str(prefix), work)
    progress = output.progress(overwrite=overwrite)
    translate_corpus(work, output, progress, translate, window=window)
    return progress


def written(prefix: Path) -> list[tuple[str, str]]:
    sides = [Path(f"{prefix}.{language}").read_bytes().decode().split("\n") for language in ("en", "de")]
    assert [side.pop() for side in sides] == ["", ""]
    return list(zip(*sides, strict=True))


def test_one_line_for_every_line_and_what_is_counted(folder: Path) -> None:
    progress = make(work_of(folder), folder / "out/made")
    pairs = written(folder / "out/made")
    assert [source for source, _ in pairs] == [*LINES, "more", "and more"]
    made = upper([*LINES, "more", "and more"])
    assert [target for _, target in pairs] == ["" if AT_LIMIT in one.notes else one.written[0] for one in made]
    counts = progress.counts
    assert (counts.lines, counts.pairs, counts.halves, counts.empty, counts.failed) == (18, 18, 4, 2, 1)
    text = folder / "text.en.gz"
    assert counts.problems() == [
        f"1 line without a translation of finite probability ({text}, line 13)",
        f"1 line left without a translation, because the search reached the length limit ({text}, line 15)",
    ]
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["made.de", "made.en", "made.manifest.json"]


def test_n_best_and_originals(folder: Path) -> None:
    make(work_of(folder, n_best=3, keep_original=True), folder / "made")
    pairs = written(folder / "made")
    assert len(pairs) == 16 * 4 + 2 * 3
    assert pairs[4:8] == [("line 1", text) for text in ("LINE 1", "LIN", "", "LINE 1")]
    assert pairs[-3:] == [("and more", "AND MORE"), ("and more", "AND"), ("and more", "")]


MOMENTS = 2 + 3 * 4 + 2
"""The record at the beginning; of 3 windows both files and the record; the names of the files."""


@pytest.mark.parametrize("when", range(MOMENTS + 1))
def test_a_kill_at_any_moment_changes_nothing(folder: Path, when: int) -> None:
    """Before each time that something is put on disk, or gets its name."""
    make(work_of(folder, n_best=2), folder / "whole", window=6)
    child = os.fork()
    if not child:
        _kill_at(when)
        make(work_of(folder, n_best=2), folder / "made", window=6)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if when < MOMENTS else 0)
    progress = make(work_of(folder, n_best=2), folder / "made", window=6)
    for suffix in ("en", "de", "manifest.json"):
        assert (folder / f"made.{suffix}").read_bytes() == (folder / f"whole.{suffix}").read_bytes()
    assert progress.counts.lines == 18 and not list(folder.glob("*.partial"))


def _kill_at(when: int) -> None:
    calls = itertools.count()

    def killing(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            if next(calls) == when:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        return called

    os.fsync, Path.replace = killing(os.fsync), killing(Path.replace)  # type: ignore[method-assign]


def test_it_translates_nothing_twice(folder: Path) -> None:
    seen: list[str] = []

    def translate(lines: Sequence[str]) -> list[Made]:
        if len(seen) == 6:
            raise DataError("no more")
        seen.extend(lines)
        return upper(lines)

    with pytest.raises(DataError, match="no more"):
        make(work_of(folder), folder / "made", translate=translate)
    assert not (folder / "made.en").exists() and not (folder / "made.de").exists()
    done = json.loads((folder / "made.manifest.json").read_text())["done"]
    assert done["counts"]["lines"] == 6 and done["is_whole"] is False
    seen.append("goes on")
    make(work_of(folder), folder / "made", translate=translate)
    assert seen == [*LINES[:6], "goes on", *LINES[6:], "more", "and more"]
    make(work_of(folder), folder / "made", translate=lambda lines: pytest.fail("it is whole"))


def test_what_differs_is_named_and_nothing_is_touched(folder: Path) -> None:
    make(work_of(folder), folder / "made")
    before = written(folder / "made")
    for changes, said in (
        ({"n_best": 2}, "decoding.n_best: 1 -> 2"),
        ({"keep_original": True}, "keep_original: False -> True"),
        ({"length_penalty": 1.0}, "decoding.length_penalty: 0.6 -> 1.0"),
    ):
        with pytest.raises(ConfigError) as error:
            make(work_of(folder, **changes), folder / "made")  # type: ignore[arg-type]
        assert str(error.value).startswith(
            f"{folder}/made.manifest.json: made with other text, models or options ({said}); "
        )
    assert make(work_of(folder, batch_tokens=7), folder / "made").is_whole  # which changes no translation
    (folder / "model/model.safetensors").write_bytes(b"others")
    (folder / "more").write_text("more\n")
    with pytest.raises(ConfigError, match=r"\(text 2 has different contents; model 1 has different contents\)"):
        make(work_of(folder), folder / "made")
    assert written(folder / "made") == before
    make(work_of(folder), folder / "made", overwrite=True)
    assert len(written(folder / "made")) == len(before) - 1


@pytest.mark.parametrize("key", ["shortlist", "glossary"])
def test_files_of_the_search_are_told_by_their_contents(folder: Path, key: str) -> None:
    file = folder / "words"
    file.write_text("a\tb\n")
    make(work_of(folder, **{key: str(file)}), folder / "made")  # type: ignore[arg-type]
    assert make(work_of(folder, **{key: str(file)}), folder / "made").is_whole  # type: ignore[arg-type]
    file.write_text("a\tc\n")
    with pytest.raises(ConfigError, match=rf"\(decoding.{key} has different contents\)"):
        make(work_of(folder, **{key: str(file)}), folder / "made")  # type: ignore[arg-type]


def test_other_references_and_another_rule_for_odd_lines_are_other_work(folder: Path) -> None:
    make(work_of(folder), folder / "made")
    with pytest.raises(ConfigError, match="errors: 'strict' -> 'replace'"):
        make(work_of(folder, errors="replace"), folder / "made")
    (folder / "text.de").write_text("other\n" * len(LINES))
    with pytest.raises(ConfigError, match=r"\(text 1 has different contents\)"):
        make(work_of(folder), folder / "made")


def test_what_an_older_version_did_not_record_is_no_difference(folder: Path) -> None:
    make(work_of(folder), folder / "made")
    record = folder / "made.manifest.json"
    content = json.loads(record.read_text())
    del content["facts"]["decoding.coverage_penalty"]
    record.write_text(json.dumps(content))
    assert make(work_of(folder), folder / "made").is_whole


def stops_at(line: str) -> Callable[[Sequence[str]], Sequence[Made]]:
    """A model that fails at a line."""

    def translate(lines: Sequence[str]) -> Sequence[Made]:
        if line in lines:
            raise DataError("no more")
        return upper(lines)

    return translate


def test_work_that_replaces_other_work_is_recorded_from_its_beginning(folder: Path) -> None:
    with pytest.raises(DataError, match="no more"):
        make(work_of(folder), folder / "made", translate=stops_at("line 9"))
    with pytest.raises(DataError, match="no more"):
        make(work_of(folder, n_best=2), folder / "made", translate=stops_at("line 0"), overwrite=True)
    make(work_of(folder, n_best=2), folder / "made")
    make(work_of(folder, n_best=2), folder / "whole")
    assert written(folder / "made") == written(folder / "whole")


def test_what_was_written_after_the_record_is_forgotten(folder: Path) -> None:
    with pytest.raises(DataError, match="no more"):
        make(work_of(folder), folder / "made", translate=stops_at("line 9"))
    for language in ("en", "de"):
        with (folder / f"made.{language}.partial").open("a") as stream:
            stream.write("not recorded\n" * 99)
    make(work_of(folder), folder / "made")
    make(work_of(folder), folder / "whole")
    assert written(folder / "made") == written(folder / "whole")


def test_files_in_the_way(folder: Path) -> None:
    (folder / "made.de").write_text("mine\n")
    with pytest.raises(DataError, match=r"made.de: exists already; give another prefix or --overwrite"):
        make(work_of(folder), folder / "made")
    assert (folder / "made.de").read_text() == "mine\n" and not (folder / "made.de.partial").exists()
    make(work_of(folder), folder / "made", overwrite=True)
    (folder / "made.de").write_text("changed\n")
    with pytest.raises(DataError, match=r"made.de: has changed since .*made.manifest.json was written"):
        make(work_of(folder), folder / "made")
    (folder / "linked.de").symlink_to(folder / "text.de")
    for prefix, file in (("linked", "linked.de"), ("text", "text.en.gz")):
        with pytest.raises(ConfigError, match=f"{file}: is also the text to translate"):
            make(work_of(folder), folder / prefix, overwrite=True)
    (folder / "packed.de.gz").write_bytes(gzip.compress(b"mine\n"))
    for overwrite in (False, True):
        with pytest.raises(DataError, match=r"packed.de.gz: exists, but .*packed.de would be read in its place"):
            make(work_of(folder), folder / "packed", overwrite=overwrite)
    assert sorted(path.name for path in folder.glob("packed*")) == ["packed.de.gz"]
    with pytest.raises(ConfigError, match=r"made.de.gz: output is not packed; leave out .gz"):
        Output(str(folder / "made"), replace(work_of(folder), languages=("en", "de.gz")))
    (folder / "made.manifest.json").write_text("{}")
    with pytest.raises(DataError, match="not a record of nmt-distill or nmt-backtranslate"):
        make(work_of(folder), folder / "made")
    (folder / "file").write_text("")
    with pytest.raises(DataError, match="cannot be read .Not a directory"):
        make(work_of(folder), folder / "file/made")


@pytest.mark.parametrize(("when", "file"), [(4, "en.partial"), (5, "de.partial"), (6, "manifest.json")])
def test_a_full_disk_is_one_line_and_the_work_goes_on_afterwards(
    folder: Path, monkeypatch: pytest.MonkeyPatch, when: int, file: str
) -> None:
    make(work_of(folder), folder / "whole")
    sync, calls = os.fsync, itertools.count()

    def full(descriptor: int) -> None:
        if next(calls) == when:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=rf"/made.{file}: cannot be written \(the disk is full\)$"):
        make(work_of(folder), folder / "made")
    assert make(work_of(folder), folder / "made").is_whole
    assert written(folder / "made") == written(folder / "whole")


def test_an_error_of_the_model_is_its_own(folder: Path) -> None:
    def fails(lines: Sequence[str]) -> list[Made]:
        raise OSError(errno.ENOENT, "no such file", "kernel.so")

    with pytest.raises(OSError, match="kernel"):
        make(work_of(folder), folder / "made", translate=fails)
    with pytest.raises(ConfigError, match="is not a prefix of files"):
        Output(f"{folder}/", work_of(folder))


def test_two_at_once_are_noticed(folder: Path) -> None:
    def translate(lines: Sequence[str]) -> list[Made]:
        with pytest.raises(DataError, match="made: another process is writing it"):
            make(work_of(folder), folder / "made")
        return upper(lines)

    assert make(work_of(folder), folder / "made", translate=translate, window=99).is_whole


def test_a_file_that_lost_what_the_record_tells_of(folder: Path) -> None:
    def stop(lines: Sequence[str]) -> list[Made]:
        if "line 3" in lines:
            raise DataError("no more")
        return upper(lines)

    with pytest.raises(DataError, match="no more"):
        make(work_of(folder), folder / "made", translate=stop)
    (folder / "made.de.partial").write_text("LI")
    with pytest.raises(DataError, match=r"made.de.partial: is shorter than recorded"):
        make(work_of(folder), folder / "made")


def test_lines_that_are_not_utf8(folder: Path) -> None:
    (folder / "more").write_bytes(b"good\nb\xffd\n")
    with pytest.raises(DataError, match=r"more, line 2: not UTF-8"):
        work_of(folder)
    progress = make(work_of(folder, errors="replace"), folder / "made")
    assert written(folder / "made")[-1] == ("b\ufffdd", "B\ufffdD")
    assert progress.counts.problems()[-1] == f"1 line not UTF-8 ({folder}/more, line 2)"


def test_references_that_are_not_utf8(folder: Path) -> None:
    (folder / "text.de").write_bytes(b"good\nb\xffd\n" + b"good\n" * (len(LINES) - 2))
    progress = make(work_of(folder, errors="replace", keep_original=True), folder / "made")
    assert written(folder / "made")[2:4] == [("line 1", "LINE 1"), ("line 1", "b\ufffdd")]
    assert progress.counts.problems()[-1] == f"1 line not UTF-8 ({folder}/text.de, line 2)"


def test_three_places_of_each_problem_are_named_also_of_resumed_work(folder: Path) -> None:
    (folder / "more").write_text("fails\n" * 4 + "last\nfails\n")
    with pytest.raises(DataError, match="no more"):
        make(work_of(folder), folder / "made", translate=stops_at("last"))
    progress = make(work_of(folder), folder / "made")
    places = [f"{folder}/text.en.gz, line 13", *(f"{folder}/more, line {number}" for number in (1, 2))]
    said = f"6 lines without a translation of finite probability ({'; '.join(places)}; ...)"
    assert progress.counts.problems()[0] == said


def test_of_two_translations_the_nearest(folder: Path) -> None:
    """To some lines the second one, and to text without references the best."""
    (folder / "text.de").write_text("".join(f"{line.upper()[:3]}\n" for line in LINES), encoding="utf-8")
    make(work_of(folder, n_best=2, nearest="chrf"), folder / "made")
    pairs = written(folder / "made")
    assert pairs[:2] == [("line 0", "LIN"), ("line 1", "LIN")] and pairs[-1] == ("and more", "AND MORE")


def test_mistakes_of_the_text(folder: Path) -> None:
    with pytest.raises(ConfigError, match="nearest: needs several translations"):
        work_of(folder, nearest="bleu")
    with pytest.raises(ConfigError, match=r"nearest: 'ter' is not known. Allowed: bleu, chrf."):
        work_of(folder, nearest="ter", n_best=2)
    with (folder / "text.de").open("a") as stream:
        stream.write("one more\n")
    with pytest.raises(DataError, match=r"text.en.gz has 16 lines but .*text.de has 17"):
        work_of(folder)
    (folder / "more").write_text("")
    with pytest.raises(DataError, match="no line to translate in .*more"):
        Texts([(folder / "more", None)])
    alone = Texts([(folder / "text.de", None)])
    with pytest.raises(ConfigError, match="keep_original: the text to translate has no references"):
        Work(alone, [folder / "model"], DecodingConfig(), ("en", "de"), keep_original=True)
