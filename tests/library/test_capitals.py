"""Lines in capitals, which `capitals: lower` translates by their small letters: of the run, its file and nmt-light."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import nmt
from nmt.case_marks.lines import capitals
from nmt.cli import translate
from nmt.exporting import command as export
from nmt.interop import run_layout
from nmt.light import Translator
from tests.compiled import needed_engine
from tests.tiny_run import make_run

LETTERS = "ABCIXYZ\u00c4\u00c9\u00df\u0130\u01c4\u023a\u0391\u03a3\u0416\u1e9e\u2c62\u01c5\U00010400"
LETTERS += " \u3000.!?-'\"<>_17\u4e2d\u0301a"
DETAILS = ["tokens", "scores", "attention", "alignment"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    needed_engine()
    folder = tmp_path_factory.mktemp("capitals")
    run = make_run(folder / "run", sentencepiece=True)
    for file in run.rglob(run_layout.CONFIG):
        config = yaml.safe_load(file.read_text())
        config["data"]["source_language"] = "en"
        file.write_text(yaml.safe_dump(config))
    assert export.main([str(run), "-o", str(folder / "m.nmt"), "--precision", "fp32"]) == 0
    with nmt.load(run, precision="fp32") as by_run, nmt.load(folder / "m.nmt") as by_file:
        light = Translator(folder / "m.nmt", library=needed_engine())
        yield {"run": by_run, "file": by_file, "light": light, "path": run}


@pytest.mark.parametrize("door", ["run", "file", "light"])
@pytest.mark.parametrize(
    ("line", "small"),
    [
        ("A LONGAER SENTENCE OF BY.", "A longaer sentence of by."),
        ("DR. C SENTENCE OF BY!  \u00c4B LONGDER I.", "Dr. c sentence of by!  \u00c4b longder I."),
        ("\"I\u2019M\" LONGDER, I-B (XI)", "\"I\u2019m\" longder, I-b (xi)"),
        ("STRA\u00dfE \u1e9eX \u023aB", "Stra\u00dfe \u1e9ex \u023ab"),
        ("A LONGAER sENTENCE", None), ("NATO", None), ("17 NATO, 18", None), ("\u4e2d\u6587", None), ("", None),
    ],
)  # fmt: skip
def test_the_translation_is_that_of_the_small_letters(
    models: dict[str, Any], door: str, line: str, small: str | None
) -> None:
    translator = models[door]
    found = translator.translate(line, capitals="lower", split="sentences")
    assert found.source == line and ("capitals" in found.notes) == (small is not None)
    wanted = translator.translate(line if small is None else small, split="sentences").text
    assert found.text == (wanted if small is None else capitals(wanted))
    as_it_is = translator.translate(line, split="sentences")
    assert translator.translate(line, capitals="keep", split="sentences") == as_it_is
    assert "capitals" not in as_it_is.notes


@pytest.mark.parametrize("keeps", [pytest.param({}, marks=pytest.mark.slow), {"placeholders": True}], ids=str)
def test_the_engine_reads_and_writes_what_the_run_does(models: dict[str, Any], keeps: dict[str, Any]) -> None:
    """Odd lines: letters without small ones, of other lengths in bytes, and of several characters."""
    chance = random.Random(3)
    parts = [*(LETTERS[:-1] * 9 + "a"), *(["{Name}", "<b>", "</b>"] * 9 if keeps else [])]
    lines = ["".join(chance.choices(parts, k=chance.randrange(1, 30))) for _ in range(60)]
    options: Any = {"capitals": "lower", "details": DETAILS, "max_length_offset": 4, "split": "sentences", **keeps}
    count = 0
    for line, one, other in zip(
        lines, models["file"].translate(lines, **options), models["run"].translate(lines, **options), strict=True
    ):
        assert (one.source, one.text, one.tokens, one.source_pieces, one.notes) == (
            line, other.text, other.tokens, other.source_pieces, other.notes,
        )  # fmt: skip
        count += "capitals" in one.notes
    assert 15 < count < 55


@pytest.mark.parametrize("door", ["run", "file", "light"])
def test_lines_with_wishes_stay(models: dict[str, Any], door: str) -> None:
    for wish in ({"prefix": "B"}, {"forbidden": ["zz"]}):
        request = nmt.Request("A LONGAER SENTENCE", **wish)
        found, plain = (models[door].translate(request, **own) for own in ({"capitals": "lower"}, {}))
        assert found == plain and "capitals" not in found.notes
    blank = models[door].translate(nmt.Request("A LONGAER SENTENCE", prefix=" "), capitals="lower")
    assert "capitals" in blank.notes


def test_what_is_kept_stays_as_it_is(models: dict[str, Any]) -> None:
    """A placeholder has small letters, which do not count, and a term its own translation."""
    line = "A LONGAER {name} OF <b>BY</b> www.x.org"
    found = models["run"].translate(line, capitals="lower", placeholders=True, glossary={"LONGAER": "L\u00e4nger"})
    assert "capitals" in found.notes
    text = found.text
    for kept in ("{name}", "<b>", "</b>", "www.x.org", "L\u00e4nger"):
        assert kept in text
        text = text.replace(kept, "")
    assert text == capitals(text) != ""


def test_the_command_counts_them(models: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").write_text("A LONGAER SENTENCE\nand B C\nOF BY\n")
    given = [str(models["path"]), "-i", str(tmp_path / "in"), "--capitals", "lower"]
    assert translate.main([*given, "--format", "jsonl"]) == 0
    out, err = capsys.readouterr()
    assert ["capitals" in json.loads(line).get("notes", []) for line in out.splitlines()] == [True, False, True]
    assert "2 lines in capitals translated by their small letters: 1, 3" in err
