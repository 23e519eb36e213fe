"""nmt-data check and clean: counts, examples, the clean copy, and nothing lost without a count."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path

import pytest

from nmt.corpora.command import build_parser, main
from nmt.corpora.faults import FAULTS
from tests.conftest import REPOSITORY

PAIRS = [
    ("A dog swims in the water.", "Ein Hund schwimmt im Wasser."),
    ("", "Leer."),
    ("A dog swims in the water.", "Ein Hund schwimmt im Wasser."),
    ("A sentence of the validation text.", "Ein Satz."),
    ("Two men play with a ball.", "Zwei Männer spielen mit einem Ball."),
    ("Copied text", "Copied text"),
    ("A tab\there.", "Ein Tab hier."),
]
FAULTY = {"empty": [2], "duplicate": [3], "held_out": [4], "copied": [6], "control": [7]}


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for place, language in enumerate(("en", "de")):
        Path(f"train.{language}").write_text("".join(f"{pair[place]}\n" for pair in PAIRS), encoding="utf-8")
    Path("dev.en").write_text("a sentence of the validation text.\n", encoding="utf-8")
    Path("dev.de").write_text("Etwas ganz anderes.\n", encoding="utf-8")
    return tmp_path


def read(name: str) -> list[str]:
    return Path(name).read_text(encoding="utf-8").splitlines()


def test_check_counts_and_shows(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(corpus.iterdir())
    assert main(["check", "train", "--languages", "en", "de", "--held-out", "dev"]) == 0
    told = capsys.readouterr().out
    assert "train.en, train.de: 7 pairs, 5 with a fault" in told
    rows = {line.split()[0]: line.split()[1:3] for line in told.splitlines()[2:10]}
    for name, (count, share) in rows.items():
        assert int(count) == len(FAULTY.get(name, [])), name
        assert share == f"{int(count) / 7:.2%}"
    assert "control, line 7\n    source  A tab\\there." in told
    assert max(map(len, told.splitlines())) <= 80
    assert sorted(corpus.iterdir()) == before


def test_check_as_json_and_languages_that_are_found(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "train", "--json", "--held-out", "dev", "--examples", "9"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["source"], report["target"]) == ("train.de", "train.en")
    found = {name: [example["line"] for example in examples] for name, examples in report["examples"].items()}
    assert found == FAULTY


def test_clean_keeps_what_is_good_and_loses_nothing(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["clean", "train", "-o", "clean/out", "--languages", "en", "de", "--held-out", "dev"]
    assert main(command) == 0
    assert "2 pairs kept, 5 dropped into clean/out.dropped.jsonl" in capsys.readouterr().out
    assert list(zip(read("clean/out.en"), read("clean/out.de"), strict=True)) == [PAIRS[0], PAIRS[4]]
    dropped = [json.loads(line) for line in read("clean/out.dropped.jsonl")]
    assert [(record["source"], record["target"]) for record in dropped] == [PAIRS[i] for i in (1, 2, 3, 5, 6)]
    assert {record["faults"][0]: [record["line"]] for record in dropped} == FAULTY
    assert main([*command, "--keep", "copied", "--keep", "control"]) == 1
    assert "clean/out.en: exists already" in capsys.readouterr().err
    assert main([*command, "--keep", "copied", "--keep", "control", "--overwrite"]) == 0
    assert read("clean/out.en") == [PAIRS[i][0] for i in (0, 4, 5, 6)]
    capsys.readouterr()
    assert main([*command, "--keep", "copied", "--overwrite", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["pairs"], report["kept"], report["dropped"]) == (7, 3, 4)
    assert main([*command, "--keep", "copied", "--keep", "control", "--overwrite"]) == 0
    assert main(["check", "clean/out", "--held-out", "dev", "--languages", "en", "de"]) == 0
    assert "4 pairs, 2 with a fault" in capsys.readouterr().out


@pytest.fixture
def twice(corpus: Path) -> list[str]:
    """What checks a corpus of three pairs; the second has a tab, the third, the same again, two faults."""
    for place, language in enumerate(("en", "de")):
        lines = [PAIRS[i][place] for i in (0, 6, 6)]
        Path(f"twice.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return ["check", "twice", "--languages", "en", "de", "--json"]


def test_a_pair_with_two_faults_is_one_faulty_pair(twice: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(twice) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["pairs"], report["faulty"]) == (3, 2)
    assert {name: count for name, count in report["faults"].items() if count} == {"control": 2, "duplicate": 1}


def test_no_more_examples_than_asked_for(twice: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*twice, "--examples", "1"]) == 0
    examples = json.loads(capsys.readouterr().out)["examples"]
    assert {name: [one["line"] for one in found] for name, found in examples.items()} == {
        "control": [2],
        "duplicate": [3],
    }


@pytest.mark.usefixtures("twice")
def test_a_pair_stays_only_if_all_of_its_faults_may(corpus: Path) -> None:
    assert main(["clean", "twice", "-o", "out", "--languages", "en", "de", "--keep", "control"]) == 0
    assert read("out.en") == [PAIRS[0][0], PAIRS[6][0]]
    (dropped,) = map(json.loads, read("out.dropped.jsonl"))
    assert (dropped["line"], dropped["faults"]) == (3, ["control", "duplicate"])


def test_languages_of_packed_files_are_found(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("train.en", "train.de"):
        Path(f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes()))
        Path(name).unlink()
    assert main(["check", "train", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["source"], report["target"], report["pairs"]) == ("train.de.gz", "train.en.gz", len(PAIRS))


def test_how_much_longer_a_side_may_be(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for language, line in (("en", "a" * 20 + " b"), ("de", "a" * 40 + " b")):
        Path(f"long.{language}").write_text(f"{'x' * 500}\n{line}\n", encoding="utf-8")
    for ratio, expected in (("1.2", 1), ("2", 0)):
        assert main(["check", "long", "--languages", "en", "de", "--json", "--max-ratio", ratio]) == expected
        assert json.loads(capsys.readouterr().out)["faults"]["length_ratio"] == expected, "then all are faulty"


def test_lines_that_are_not_utf8_are_a_fault(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.en.gz").write_bytes(gzip.compress(b"a good line\na caf\xe9 here\n"))
    Path("bad.de.gz").write_bytes(gzip.compress("eine gute Zeile\nein Café hier\n".encode()))
    assert main(["clean", "bad", "-o", "ok", "--languages", "en", "de"]) == 0
    assert read("ok.en") == ["a good line"]
    assert json.loads(read("ok.dropped.jsonl")[0])["faults"] == ["not_utf8"]
    capsys.readouterr()
    assert main(["check", "bad", "--languages", "de", "en", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"]["not_utf8"] == 1, "the target may be the one"


def test_packed_text_is_not_hidden(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command that finds both out.en and out.en.gz reads out.en."""
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        Path(f"{name}.gz").write_bytes(gzip.compress(Path(name).read_bytes()))
        Path(name).unlink()
    Path("other.de.gz").write_bytes(gzip.compress(b"of the target alone\n"))
    before = {path.name: path.read_bytes() for path in corpus.iterdir()}
    command = ["clean", "train", "--languages", "en", "de", "-o"]
    for options in ([], ["--overwrite"]):
        assert main([*command, "train", *options]) == 2
        assert capsys.readouterr().err == "nmt-data: train.en.gz: is the text to read; give another prefix\n"
        assert main([*command, "dev", "--held-out", "dev", *options]) == 2
        assert capsys.readouterr().err == "nmt-data: dev.en.gz: is the text to read; give another prefix\n"
        assert main([*command, "dev", *options]) == 1
        said = "exists, but dev.en would be read in its place; move it away or give another prefix"
        assert capsys.readouterr().err == f"nmt-data: dev.en.gz: {said}\n"
        assert main([*command, "other", *options]) == 1
        assert capsys.readouterr().err.startswith("nmt-data: other.de.gz: exists, but other.de would be read")
    assert {path.name: path.read_bytes() for path in corpus.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["check", "nowhere"], "nowhere: not two files with this prefix (none); name the languages", 2),
        (
            ["check", "train", "--languages", "en", "fr"],
            "--languages en fr: neither train.fr nor train.fr.gz exists",
            1,
        ),
        (["check", "train", "--held-out", "dve"], "neither dve.de nor dve.de.gz exists", 1),
        (["check", "train", "--held-out", "wide"], "wide.de, line 1: not UTF-8", 1),
        (["clean", "train", "-o", "out", "--held-out", "latin"], "latin.de, line 1: not UTF-8", 1),
        (["check", "train", "--max-ratio", "0.5"], "'0.5' is not a number from 1 to", 2),
        (["clean", "train", "-o", "train"], "train.de: is the text to read", 2),
        (["clean", "train", "-o", "out", "--keep", "copy"], "'copy' is not a fault. Did you mean 'copied'?", 2),
        (["clean", "train", "-o", "train.en/out"], "train.en", 1),
        (["clean", "odd", "-o", "out", "--languages", "en", "de.gz"], "out.de.gz: output is not packed; leave out", 2),
        (["check", "odd"], "odd.de has 1 line but odd.en has 2", 1),
        (["check", "none"], "the corpus is empty", 1),
    ],
)
def test_mistakes_are_one_line(
    corpus: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str, code: int
) -> None:
    for name, text in (("odd.en", "a\nb\n"), ("odd.de", "a\n"), ("none.en", ""), ("none.de", "")):
        Path(name).write_text(text, encoding="utf-8")
    for name, encoding in (("wide", "utf-16-le"), ("latin", "latin-1")):
        for language in ("en", "de"):
            Path(f"{name}.{language}").write_text("Zwei Männer spielen.\n", encoding=encoding)
    if "de.gz" in arguments:
        Path("odd.de.gz").write_bytes(gzip.compress(b"a\nb\n"))
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert read("train.en") == [pair[0] for pair in PAIRS]
    assert not list(corpus.glob("out*"))


def test_the_guide_lists_the_faults() -> None:
    guide = (REPOSITORY / "docs" / "corpora.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+)`", guide.split("## Checking")[1])) == {*FAULTS, "langid"}
    for line in re.findall(r"^nmt-data .*$", guide, re.MULTILINE):
        build_parser().parse_args(shlex.split(line, comments=True)[1:])
