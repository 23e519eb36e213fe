"""A tiny run for the tests of the library, and translators of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nmt
from tests.tiny_run import make_run

SENTENCES = ["a b c", "c", "", "d d a", "b longer a", "a b c d a b c d", "unknown b", "  "]


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two checkpoints with random weights."""
    return make_run(tmp_path_factory.mktemp("library") / "run")


@pytest.fixture(scope="session")
def local(tiny_run: Path) -> Iterator[nmt.Translator]:
    """A translator in this process."""
    with nmt.load(tiny_run, device="cpu") as translator:
        yield translator
