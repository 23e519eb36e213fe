"""What the commands set before torch is imported, and that a user's own settings win."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt import cli, environment
from nmt.environment import CACHES, WAITING, prepare_environment


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "available_cores", lambda: 8)
    monkeypatch.setattr(environment, "usable_cores", lambda: 8)


def test_everything_where_nothing_is_set() -> None:
    settings: dict[str, str] = {}
    prepare_environment(settings)
    assert settings == {**CACHES, **WAITING}


@pytest.mark.parametrize("name", WAITING)
def test_a_users_way_of_waiting_is_left_alone(name: str) -> None:
    settings = {name: "ACTIVE"}
    prepare_environment(settings)
    assert settings == {**CACHES, name: "ACTIVE"}


def test_a_limit_on_cpu_time_is_a_limit_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "usable_cores", lambda: 2)
    settings: dict[str, str] = {}
    prepare_environment(settings)
    assert settings["OMP_NUM_THREADS"] == "2"
    settings = {"OMP_NUM_THREADS": "5"}
    prepare_environment(settings)
    assert settings["OMP_NUM_THREADS"] == "5"


def test_commands_set_it_before_torch_is_there() -> None:
    """In a process of its own, because torch is imported here."""
    program = "import nmt.cli.train, os, sys; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    clean = {name: value for name, value in os.environ.items() if name not in WAITING}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=clean, check=True)
    assert done.stdout.split() == [WAITING["GOMP_SPINCOUNT"], "False"]


def test_one_of_several_processes_says_what_is_lost_in_a_line_of_its_own() -> None:
    settings = {"WORLD_SIZE": "2"}
    prepare_environment(settings)
    assert settings["TORCH_CPP_LOG_LEVEL"] == "ERROR"


def test_a_mistake_in_the_options_of_no_command_waits_for_torch() -> None:
    commands = sorted(path.stem for path in Path(cli.__file__).parent.glob("*.py") if "def main(" in path.read_text())
    assert {"average", "check", "convert", "evaluate", "score", "shortlist", "train", "translate"} <= set(commands)
    imports = "; ".join(f"import nmt.cli.{name}" for name in commands)
    program = f"{imports}; import sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
