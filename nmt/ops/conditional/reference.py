"""What runs where no kernel does: the loop as the model writes it out, with its own cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")


def run_written_out(*_: Any, written_out: Callable[[], R], **__: Any) -> R:
    """Takes what the kernels take, calls `written_out`."""
    return written_out()
