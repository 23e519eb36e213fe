"""TensorFlow for the tests that need it: what is installed, else the extra, installed into a folder of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY


def tensorflow_folder() -> str:
    """Where Python finds TensorFlow; empty where it is installed. Skips where it cannot be installed.

    The folder lies beside the environment of the tests and is kept: TensorFlow is hundreds of megabytes.
    """
    if importlib.util.find_spec("tensorflow") is not None:
        return ""
    setup = (REPOSITORY / "setup.py").read_text(encoding="utf-8")
    (required,) = re.findall(r"^TENSORFLOW = \[(.*?)\]", setup, flags=re.M)
    requirements = re.findall(r'"([^"]+)"', required)
    folder = Path(sys.prefix) / f"extra-tensorflow-{sys.version_info.major}.{sys.version_info.minor}"
    if not (folder / "installed").is_file():
        constraints = str(REPOSITORY / "scripts" / "constraints.txt")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--upgrade", "--target", str(folder)]
        done = subprocess.run(
            [*pip, "--constraint", constraints, *requirements], capture_output=True, text=True, check=False
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["pip failed"]
            pytest.skip(f"the extra [tensorflow] cannot be installed: {lines[-1]}")
        (folder / "installed").touch()
    return str(folder)


def run_with(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with this checkout's nmt and the TensorFlow in `folder`."""
    path = os.pathsep.join(part for part in (str(REPOSITORY), folder, os.environ.get("PYTHONPATH")) if part)
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
