"""Where the compiled engine lies."""

from __future__ import annotations

import os

from .errors import EngineError

NAME = "libnmt_engine.so"


def shared_library() -> str:
    """The library of this package; EngineError if there is none, as in nmt, where nmt.load compiles it."""
    path = os.path.join(os.path.dirname(__file__), NAME)
    if not os.path.isfile(path):
        raise EngineError(f"{path}: the engine is not compiled here; use nmt.load, or the package nmt-light")
    return path
