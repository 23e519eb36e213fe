"""The compiled engine, for tests of the package in Python and of its command."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.errors import ConfigError
from nmt.interop.engine.compiled import compiled_engine


@pytest.fixture(scope="session")
def engine() -> Path:
    try:
        return compiled_engine()
    except ConfigError as error:
        pytest.skip(str(error))
