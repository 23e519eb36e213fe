"""The compiled engine for tests: skipped where there is no C compiler, a failure where the code does not compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.compiling import BuildError, find_compiler
from nmt.interop.engine.compiled import compiled_engine


def needed_engine() -> Path:
    """The shared library."""
    try:
        find_compiler()
    except BuildError as error:
        pytest.skip(str(error))
    return compiled_engine()
