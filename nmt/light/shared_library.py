"""Where the compiled engine lies."""

from __future__ import annotations

from pathlib import Path

from .errors import EngineError

NAME = "libnmt_engine.so"


def shared_library() -> Path:
    """That of this package; EngineError where there is none, as in nmt's own package, which compiles it (nmt.load)."""
    path = Path(__file__).with_name(NAME)
    if not path.is_file():
        raise EngineError(f"{path}: the engine is not compiled here; use nmt.load, or the package nmt-light")
    return path
