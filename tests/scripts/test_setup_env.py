"""scripts/setup_env: one clear line for each mishap, and a second run that reuses what the first made."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

NOWHERE = "http://127.0.0.1:9/simple"  # the discard port, where nothing listens

FAKE_PYTHON = """#!/usr/bin/env bash
# A Python {version} that only says so, makes an "environment" of itself and writes down what it is asked to do.
echo "$*" >> {calls}
case "$*" in
    *sys.exit*) exit {too_old} ;;
    *version_info*) echo {version} ;;
    "-m venv "*) mkdir -p "$3/bin" && touch "$3/pyvenv.cfg" && cp "$0" "$3/bin/python" ;;
    *"pip install"*) {pip} ;;
esac
"""


def fake_python(path: Path, *, version: str = "3.12", too_old: bool = False, pip: str = "true") -> Path:
    """Write an executable that behaves like Python as far as setup_env asks."""
    calls = path.parent / "calls"
    text = FAKE_PYTHON.format(version=version, calls=calls, too_old=int(too_old), pip=pip)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def set_up(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Source scripts/setup_env as scripts/test does, with the environment below `folder`."""
    script = f'set -euo pipefail; program=scripts/test; . "{REPOSITORY}/scripts/setup_env"; echo "ready $venv"'
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return subprocess.run(
        ["bash", "-c", script],
        env={**inherited, "NMT_VENV": str(folder / "venv"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return done.stderr.splitlines()[-1]


def test_a_python_that_is_too_old_is_one_line(tmp_path: Path) -> None:
    old = fake_python(tmp_path / "old", version="3.8", too_old=True)
    done = set_up(tmp_path, PYTHON=str(old))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"scripts/test: PYTHON={old} is Python 3.8; nmt needs Python 3.10 or newer\n"


def test_only_old_pythons_on_the_path_is_one_line(tmp_path: Path) -> None:
    for name in ("python3", "python3.13", "python3.12", "python3.11", "python3.10", "python"):
        fake_python(tmp_path / name, version="3.9", too_old=True)
    done = set_up(tmp_path, PYTHON="", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "needs Python 3.10 or newer; found only 3.9" in done.stderr


def test_a_python_that_does_not_run_is_one_line(tmp_path: Path) -> None:
    done = set_up(tmp_path, PYTHON=str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stderr == f"scripts/test: PYTHON={tmp_path / 'none'} does not run; nmt needs Python 3.10 or newer\n"


def test_shims_that_fail_are_passed_over(tmp_path: Path) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 127\n")
    broken.chmod(0o755)
    fake_python(tmp_path / "python3.13", version="3.13")
    done = set_up(tmp_path, PYTHON="", PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 0
    assert "with Python 3.13" in done.stderr


def test_a_second_run_reuses_the_environment(tmp_path: Path) -> None:
    python = fake_python(tmp_path / "python3")
    first = set_up(tmp_path, PYTHON=str(python))
    assert (first.returncode, first.stdout) == (0, f"ready {tmp_path / 'venv'}\n")
    installs = (tmp_path / "calls").read_text().count("pip install")
    second = set_up(tmp_path, PYTHON=str(tmp_path / "gone"))
    assert (second.returncode, second.stderr) == (0, "")
    assert installs == 2
    assert (tmp_path / "calls").read_text().count("pip install") == installs


def test_an_unfinished_environment_is_made_anew(tmp_path: Path) -> None:
    broken = fake_python(tmp_path / "python3", pip="exit 1")
    assert set_up(tmp_path, PYTHON=str(broken)).returncode == 1
    working = fake_python(tmp_path / "python3")
    assert set_up(tmp_path, PYTHON=str(working)).returncode == 0


def test_a_folder_in_the_way_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "precious").touch()
    done = set_up(tmp_path, PYTHON=str(fake_python(tmp_path / "python3")))
    assert done.returncode == 1
    assert "in the way" in last_line(done)
    assert (tmp_path / "venv" / "precious").exists()


def test_too_little_disk_is_one_line(tmp_path: Path) -> None:
    df = tmp_path / "df"
    df.write_text("#!/bin/sh\nprintf 'head\\n/dev/x 9 9 102400 9%% /\\n'\n")
    df.chmod(0o755)
    python = fake_python(tmp_path / "python3")
    done = set_up(tmp_path, PYTHON=str(python), PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "not enough disk" in done.stderr and "100 MB are free" in done.stderr


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("WARNING: Retrying (Retry(total=4)) after connection broken", "no network"),
        ("ERROR: Cannot install a==1 and b==2", "setting up failed: ERROR: Cannot install a==1 and b==2"),
    ],
)
def test_what_pip_says_becomes_one_line(tmp_path: Path, said: str, expected: str) -> None:
    python = fake_python(tmp_path / "python3", pip=f'echo "{said}"; exit 1')
    done = set_up(tmp_path, PYTHON=str(python))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 2  # what it is about to do, and what went wrong
    assert expected in last_line(done)


def test_no_network_is_one_line(tmp_path: Path) -> None:
    done = set_up(
        tmp_path,
        PYTHON=sys.executable,
        PIP_CONFIG_FILE=os.devnull,
        PIP_INDEX_URL=NOWHERE,
        PIP_RETRIES="1",
        PIP_NO_CACHE_DIR="1",
    )
    assert done.returncode == 1
    assert "no network: packages could not be fetched" in last_line(done)
