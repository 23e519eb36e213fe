"""nmt-data tatoeba: what is held out, whatever the order of the original; archives from a local server."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zipfile
from itertools import islice
from pathlib import Path

import pytest

from nmt.corpora import fetch as downloads
from nmt.corpora import tatoeba
from nmt.corpora.command import main
from nmt.data.text import FilePair, read_pairs
from tests.conftest import SHARED
from tests.corpora.conftest import Server, home

PARTS = ("train", "dev", "test")
Pairs = list[tuple[str, str]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tatoeba, "HELD_OUT", {"dev": 20, "test": 30})
    monkeypatch.setattr(downloads, "PAUSE", 0)


def original() -> list[str]:
    """Sentences paired many to many, as lines with three columns; some short, some in other cases, some twice."""
    lines = []
    for i in range(200):
        english = f"They have seen {i} of these houses."
        lines += [f"{english}\tSie haben {i} dieser Häuser gesehen.\tCC-BY {i}"]
        lines += [f"{english}\tSie sahen {i} dieser Häuser.\tCC-BY {i}"] * (i % 3 == 0)
        lines += [f"{english.upper()}\tSIE SAHEN {i}!\tCC-BY {i}"] * (i % 7 == 0)
        lines += [f"We saw {i} of these houses.\tSie haben {i} dieser  häuser gesehen.\tCC-BY {i}"] * (i % 2 == 0)
    lines += [f"Go {i} now.\tGeh {i} jetzt doch bitte.\tCC-BY" for i in range(100)]
    lines += lines[:3] + ["no second side", "\tnur rechts", "left alone\t \tx", ""]
    return lines


def packed(lines: list[str], *, name: str = "deu.txt") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_about.txt", "about")
        archive.writestr(name, "\n".join(lines) + "\n")
    return buffer.getvalue()


def texts(folder: Path) -> dict[str, Pairs]:
    sides = {
        part: [(folder / f"{part}.{side}").read_text("utf-8").split("\n") for side in ("en", "de")] for part in PARTS
    }
    assert all(side.pop() == "" for both in sides.values() for side in both)
    return {part: list(zip(*both, strict=True)) for part, both in sides.items()}


def folded(sentence: str) -> str:
    return " ".join(sentence.lower().split())


def test_what_is_held_out(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = packed(original())
    server.files["/deu-eng.zip"] = archive
    assert main(["tatoeba", "--to", str(tmp_path), "--mirror", home(server)]) == 0
    said = capsys.readouterr().out
    assert "CC BY 2.0 FR" in said and f"deu-eng.zip: SHA-256 {hashlib.sha256(archive).hexdigest()}" in said
    found = texts(tmp_path)
    assert [len(found[part]) for part in ("dev", "test")] == [20, 30]
    pairs = {tuple(column.strip() for column in line.split("\t")[:2]) for line in original() if line.count("\t") == 2}
    usable = {pair for pair in pairs if all(pair)}
    held_out = found["dev"] + found["test"]
    assert all(pair in usable for part in PARTS for pair in found[part])
    for side in (0, 1):  # one reference each, and nothing of it anywhere else
        own = [folded(pair[side]) for pair in held_out]
        assert len(set(own)) == 50
        assert not set(own) & {folded(pair[side]) for pair in found["train"]}
    assert all(len(english.split()) >= 4 for english, _ in held_out)
    assert len(set(found["train"])) == len(found["train"])
    lost = usable - {*held_out, *found["train"]}
    english, german = ({folded(pair[side]) for pair in held_out} for side in (0, 1))
    other = sum(folded(pair[0]) in english for pair in lost)
    assert all(folded(pair[0]) in english or folded(pair[1]) in german for pair in lost)
    assert 0 < other < len(lost)
    assert f"left out of train: {other:,} other translations of English sentences of dev and test, " in said
    assert f"{len(lost) - other:,} other originals of their German sentences" in said
    assert f"{len(original()):,} lines: 4 without two sentences, 3 repeated" in said
    assert f"train: {len(found['train']):,} pairs" in said
    assert "not held out: " in said and "not held out: 0" not in said


def test_neither_the_order_nor_more_sentences_change_much(tmp_path: Path) -> None:
    """The same from another order; with some sentences more, most of what is held out."""
    lines = original()
    shuffled = random.Random(3).sample(lines, len(lines))
    more = [*lines, *(f"There are {i} new houses here.\tHier sind {i} neue Häuser." for i in range(20))]
    for name, content in (("a", lines), ("b", shuffled), ("c", more)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "deu.txt").write_text("\n".join(content), encoding="utf-8")
        assert main(["tatoeba", "--from", str(tmp_path / name), "--to", str(tmp_path / name / "to")]) == 0
    first, other, larger = (texts(tmp_path / name / "to") for name in "abc")
    assert first == other
    held_out = [{pair for part in ("dev", "test") for pair in found[part]} for found in (first, larger)]
    assert 40 <= len(held_out[0] & held_out[1]) < 50


def test_the_sentences_are_those_of_the_smallest_sums() -> None:
    """Computed here in another way, from sentences of which each has one translation."""
    lines = [f"This is sentence {i}\tDas ist Satz {i}" for i in range(300)]  # four words are enough
    found = tatoeba.split(lines)

    def by_sum(i: int) -> str:
        return hashlib.sha256(f"this is sentence {i}".encode()).hexdigest()

    wanted = sorted(range(300), key=by_sum)
    assert [pair.source.split()[-1] for pair in found.dev + found.test] == [str(i) for i in wanted[:50]]


def test_a_second_call_fetches_nothing_and_a_missing_file_is_made_again(server: Server, tmp_path: Path) -> None:
    server.files["/v2018/other.zip"] = packed(original())
    command = ["tatoeba", "--to", str(tmp_path), "--mirror", f"{home(server)}/v2018/other.zip"]
    assert main(command) == 0
    first, asked = texts(tmp_path), len(server.asked)
    (tmp_path / "dev.de").unlink()
    assert main(command) == main(command) == 0
    assert texts(tmp_path) == first and len(server.asked) == asked
    assert not list(tmp_path.glob("*.part"))


def test_a_broken_transfer_goes_on(server: Server, tmp_path: Path) -> None:
    server.files["/deu-eng.zip"] = packed(original())
    server.break_after = [100, 200]
    assert main(["tatoeba", "--to", str(tmp_path), "--mirror", home(server)]) == 0
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100-", "bytes=300-"]
    assert len(texts(tmp_path)["dev"]) == 20


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive", "deu-eng.zip: damaged archive"),
        (packed(original())[:-40], "deu-eng.zip: damaged archive"),
        (packed(original(), name="fra.txt"), "deu-eng.zip: deu.txt is not in it"),
        (packed(original()[:70]), "but dev and test need 50: is this the English-German text?"),
        (packed(["Go.\tGeh."] * 999), "0 English sentences of 4 words or more"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "deu-eng.zip").write_bytes(content)
    assert main(["tatoeba", "--from", str(tmp_path / "from"), "--to", str(tmp_path / "to")]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not (tmp_path / "to").exists()


def test_other_files_are_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deu.txt").write_text("\n".join(original()), encoding="utf-8")
    (tmp_path / "test.en").write_text("mine\n")
    assert main(["tatoeba", "--to", str(tmp_path)]) == 1
    assert "test.en: its checksum" in capsys.readouterr().err
    assert (tmp_path / "test.en").read_text() == "mine\n" and not (tmp_path / "train.en").exists()
    assert main(["tatoeba", "--from", str(tmp_path / "nothing"), "--to", str(tmp_path / "to")]) == 2
    (tmp_path / "nothing").mkdir()
    assert main(["tatoeba", "--from", str(tmp_path / "nothing"), "--to", str(tmp_path / "to")]) == 1
    assert "nothing holds neither deu-eng.zip nor deu.txt" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("content", [f"{'0' * 64} *x.en\n".encode(), b"caf\xe9\n", b""])
def test_other_sums_are_not_read(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deu.txt").write_text("\n".join(original()), encoding="utf-8")
    (tmp_path / "SHA256SUMS").write_bytes(content)
    assert main(["tatoeba", "--to", str(tmp_path)]) == 1
    said = "is not a list of checksums that nmt-data wrote; move it away"
    assert capsys.readouterr().err == f"nmt-data: {tmp_path / 'SHA256SUMS'}: {said}\n"
    assert (tmp_path / "SHA256SUMS").read_bytes() == content and not (tmp_path / "train.en").exists()


def test_real_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """5,000 pairs of the data that lie beside the checkout; nmt-data check finds nothing of what is held out."""
    folder = SHARED / "data" / "tatoeba_deu_eng"
    if not folder.is_dir():
        pytest.skip("Tatoeba is not here: shared/data/tatoeba_deu_eng is missing beside the checkout")
    monkeypatch.setattr(tatoeba, "HELD_OUT", {"dev": 200, "test": 250})
    pairs = read_pairs(FilePair(folder / "train.en.gz", folder / "train.de.gz"))
    lines = ["\t".join(pair) for pair in islice(pairs, 5_000)]
    (tmp_path / "deu.txt").write_text("\n".join(lines), encoding="utf-8")
    assert main(["tatoeba", "--to", str(tmp_path)]) == 0
    held_out = [word for part in ("dev", "test") for word in ("--held-out", str(tmp_path / part))]
    assert len(texts(tmp_path)["train"]) > 4_300
    capsys.readouterr()
    assert main(["check", str(tmp_path / "train"), "--languages", "en", "de", *held_out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faults"]["held_out"] == 0
