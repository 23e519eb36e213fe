"""Test texts in other forms, and nmt-eval --robustness."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmt.augmentation.robustness import typed
from nmt.evaluating.command import main
from tests.tiny_run import make_run

LINES = ["The old man sees a horse.", "Is it I?", "a – b", ""]
NAMES = ["as it is", "capitals", "title case", "small letters", "no end mark", "other punctuation", "typing errors"]


def test_forms() -> None:
    changed = typed(LINES, languages=("en", "de"))
    sources = changed.sources
    assert [*sources] == [*NAMES, "two letters exchanged"]
    assert sources["as it is"] == LINES and typed(LINES, languages=("en", "de")).sources == sources
    assert sources["capitals"] == ["THE OLD MAN SEES A HORSE.", "IS IT I?", "A – B", ""]
    assert sources["title case"][0] == "The Old Man Sees A Horse." and sources["small letters"][1] == "is it i?"
    assert sources["no end mark"] == ["The old man sees a horse", "Is it I", "a – b", ""]
    assert sources["other punctuation"][2] == "a - b"
    exchanged = sources["two letters exchanged"]
    assert exchanged[1:] == LINES[1:] and exchanged[0] != LINES[0] and sorted(exchanged[0]) == sorted(LINES[0])
    assert sum(one != other for one, other in zip(exchanged[0], LINES[0], strict=True)) == 2
    assert changed.compared(["Ein MANN.", "Ja", "…"]) == ["ein mann", "ja", ""]
    assert typed(["istanbul"], languages=("tr", "en")).sources["capitals"] == ["İSTANBUL"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    folder = tmp_path_factory.mktemp("files")
    run = make_run(folder / "run", sentencepiece=True)
    (folder / "source").write_text("a longaer sentence.\nb of longber\n", encoding="utf-8")
    (folder / "reference").write_text("A longaer sentence.\nb of\n", encoding="utf-8")
    return str(run), str(folder / "source"), str(folder / "reference")


def test_a_row_for_each_form(files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run, source, reference = files
    options = [run, "--source", source, "--ref", reference, "--robustness", "--metrics", "bleu", "--samples", "20"]
    assert main([*options, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert [row["system"] for row in found] == [*NAMES, "two letters exchanged"]
    assert said.err.count(": 2 lines in") == 8
    assert "compared in small letters and without marks at their ends" in said.err


def test_what_does_not_go_with_it(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run, source, reference = files
    several = "translates --source in several forms by MODEL;"
    for given, problem in (
        (["--hyp", source], "needs one MODEL; does not go with --hyp"),
        ([run, f"{run}/checkpoints/last", "--source", source], "needs one MODEL; for the ensemble of several write"),
        ([run, "--source", source, "-o", str(tmp_path / "out")], f"{several} -o does not"),
        ([run, "--source", source, "--baseline", reference], f"{several} --baseline does not"),
    ):
        assert main([*given, "--ref", reference, "--robustness"]) == 2
        assert f"--robustness: {problem}" in capsys.readouterr().err
