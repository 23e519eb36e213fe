"""The compiled engine, for tests of the package in Python and of its command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiled import needed_engine


@pytest.fixture(scope="session")
def engine() -> Path:
    return needed_engine()
