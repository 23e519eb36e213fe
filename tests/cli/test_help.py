"""--help of every command: readable on a terminal of 80 columns."""

from __future__ import annotations

import argparse

import pytest

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


def _kinds(parser: argparse.ArgumentParser) -> list[str]:
    """The commands below a command."""
    return [
        kind for action in parser._actions if isinstance(action, argparse._SubParsersAction) for kind in action.choices
    ]
