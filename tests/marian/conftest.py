"""The golden models of Marian and OPUS-MT beside the checkout, and small files made here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SHARED

GOLDEN = SHARED / "marian"


def golden(name: str) -> Path:
    """A folder of golden files; skips where they are absent."""
    if not (GOLDEN / name).is_dir():
        pytest.skip(f"the golden models are not here: shared/marian/{name} is missing beside the checkout")
    return GOLDEN / name


@pytest.fixture
def ssru() -> Path:
    """A student as Firefox ships them."""
    return golden("ssru")


@pytest.fixture
def opus_mt() -> Path:
    """A MarianMT folder of transformers."""
    return golden("opus_mt")


def installed(requirement: str) -> str:
    """Where Python finds a package of its own, which is installed the first time; skips where that cannot be."""
    name = requirement.partition("==")[0]
    folder = Path(sys.prefix) / f"extra-{name}-{sys.version_info.major}.{sys.version_info.minor}"
    if not (folder / "installed").is_file():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--target", str(folder), requirement]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(
                f"{requirement} cannot be installed: {(done.stderr.strip().splitlines() or ['pip failed'])[-1]}"
            )
        (folder / "installed").touch()
    return str(folder)
