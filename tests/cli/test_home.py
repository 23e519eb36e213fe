"""`~` on command lines is the home directory in names of files, and itself in text."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.corpora import command as data
from nmt.language_models import command as sample
from nmt.plotting import command as plot
from nmt.report import command as report
from nmt.serving import command as serve

TEXTS = ["~20 dogs run.", "~/ is my home."]


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")


@pytest.mark.parametrize("text", TEXTS)
def test_sentences_are_not_changed(text: str) -> None:
    words = ["~/run", "--text", text, f"--target={text}", "-o~/map.svg", "--plugin", "~/own.py"]
    for parser in (plot.attention_parser, plot.memory_parser):
        found = parser("nmt-plot").parse_args(words)
        assert (found.text, found.target) == (text, text)
        assert (found.model, found.output, found.plugins) == ("/home/me/run", "/home/me/map.svg", ["/home/me/own.py"])
    assert sample.build_parser().parse_args(["~/lm", "--prompt", text]).prompt == text
    found = serve.build_parser().parse_args(["~/run", "--api-key", text])
    assert (found.models, found.api_key) == (["/home/me/run"], text)


def test_labels_are_not_changed() -> None:
    found = plot.build_parser().parse_args(["~/a", "~/b", "-o", "~/c.svg", "--labels", *TEXTS])
    assert (found.runs, found.labels) == (["/home/me/a", "/home/me/b"], TEXTS)
    found = report.build_parser().parse_args(["--labels", *TEXTS, "--hyp", "~/a", "~/b", "--ref=~/r", "-o", "~/p.html"])
    assert (found.labels, found.ref, found.output) == (TEXTS, ["/home/me/r"], "/home/me/p.html")


def test_names_after_a_subcommand_and_those_that_become_paths() -> None:
    found = data.build_parser().parse_args(["clean", "~/corpus/train", "-o", "~/clean"])
    assert (found.prefix, found.output) == ("/home/me/corpus/train", "/home/me/clean")
    found = data.build_parser().parse_args(["multi30k", "--to=~/data", "--from", "~"])
    assert (found.to, found.copies) == (Path("/home/me/data"), Path("/home/me"))


def test_the_option_of_a_home_directory_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert data.main(["clean", "train", "-o", "~nobody-here/out"]) == 2
    said = "'~nobody-here' is no home directory; './~nobody-here' means a file of that name"
    assert capsys.readouterr().err.startswith(f"nmt-data clean: argument -o/--output: {said}")
