"""`nmt COMMAND`: every command is there, is the one of its own name, and mistakes are one line."""

from __future__ import annotations

import sys

import pytest

from nmt.umbrella.command import GROUPS, main
from tests.console import call, entry_points


@pytest.fixture(autouse=True)
def _argv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)


def test_it_has_every_command_by_its_module() -> None:
    own = {f"nmt-{name}": module for commands in GROUPS.values() for name, (module, _) in commands.items()}
    assert own == {name: module.__name__ for name, (module, function) in entry_points().items() if function == "main"}
    assert len(GROUPS) == 4


@pytest.mark.parametrize("arguments", [["score", "--help"], ["help", "score"], ["nmt-score", "-h"]])
def test_help_of_a_command_is_its_own(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("nmt-score", "--help") == 0
    wanted = capsys.readouterr().out
    assert main(arguments) == 0
    assert capsys.readouterr().out == wanted


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"], ["help", "help"], []])
def test_all_commands_fit_80_columns(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == (0 if arguments else 2)
    out, err = capsys.readouterr()
    said = (out or err).splitlines()
    assert not (out and err) and max(map(len, said)) <= 80
    assert [line.split()[0] for line in said if line.startswith("  ")] == [
        n for names in GROUPS.values() for n in names
    ]


def test_exit_codes_and_mistakes_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--sauce"]) == 2
    assert capsys.readouterr().err.startswith("nmt-score: ")
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "nmt: 'trian' is no command. Did you mean 'train'? nmt --help lists them.\n"
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nmt ")
