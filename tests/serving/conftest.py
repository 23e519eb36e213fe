"""A tiny run for the tests of the server, and a file of it for the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exported_run import Exported, make_exported
from tests.tiny_run import make_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with words."""
    return make_run(tmp_path_factory.mktemp("serving") / "run")


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A run with subwords, and a file of it."""
    return make_exported(tmp_path_factory.mktemp("exported"))
