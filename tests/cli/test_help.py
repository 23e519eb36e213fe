"""--help of every command: readable on a terminal of 80 columns."""

from __future__ import annotations

import argparse
import shlex

import pytest

from nmt.cli.common import EXAMPLES
from nmt.plotting import command as plot
from tests.console import call, entry_points, parser_of


@pytest.mark.parametrize("name", sorted(entry_points()))
def test_help_fits_80_columns(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for below in ([], *([kind] for kind in _kinds(parser_of(name)))):
        assert call(name, *below, "--help") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(f"usage: {name}")
        assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("name", sorted(entry_points()))
def test_every_option_is_explained(name: str) -> None:
    parser = parser_of(name)
    actions = [action for action in parser._actions if not isinstance(action, argparse._SubParsersAction)]
    assert [action.dest for action in actions if not action.help] == []


def test_names_are_not_cut_at_their_hyphens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert [line for line in parser_of("nmt-score").format_help().splitlines() if line.endswith("-")] == []


@pytest.mark.parametrize("name", [*sorted(entry_points()), "nmt-plot attention", "nmt-plot memory", "nmt-plot live"])
def test_help_ends_with_examples_that_parse(name: str) -> None:
    below = {f"nmt-plot {kind}": parser for kind, parser in plot.MAPS.items()}
    parser = below[name](name) if name in below else parser_of(name)
    examples = parser.format_help().partition(f"\n{EXAMPLES}")[2].replace("\\\n", "").splitlines()
    assert examples
    for example in examples:
        assert example.startswith(f"  {name} ")
        words = shlex.split(example)[len(name.split()) :]
        ends = [place for place, word in enumerate(words) if word in ("<", ">")]
        parser.parse_args(words[: min(ends, default=len(words))])


def _kinds(parser: argparse.ArgumentParser) -> list[str]:
    """The commands below a command."""
    return [
        kind for action in parser._actions if isinstance(action, argparse._SubParsersAction) for kind in action.choices
    ]
