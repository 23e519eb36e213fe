"""Where the compiled engine lies."""

from __future__ import annotations

import os

from .errors import EngineError

NAME = "libnmt_engine.so"


def shared_library() -> str:
    """That of this package; EngineError where there is none, as in nmt's own package, which compiles it (nmt.load)."""
    path = os.path.join(os.path.dirname(__file__), NAME)
    if not os.path.isfile(path):
        raise EngineError(f"{path}: the engine is not compiled here; use nmt.load, or the package nmt-light")
    return path
