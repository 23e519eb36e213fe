"""Lines in windows: as many as are worth having together, bounded also where each is very long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from nmt.errors import DataError

T = TypeVar("T")

PATIENCE = 0.2
"""Seconds that a window waits for more lines, counted from its first."""
CHARACTERS = 1 << 22
"""A window that holds so many gets no further line, so that long lines do not fill the memory."""

Arrives = Callable[[float], bool]
"""Whether the next line, or the end of the input, is here within so many seconds."""


def windows(
    lines: Iterable[T], *, size: int, arrives: Arrives | None = None, length: Callable[[Any], int] = len
) -> Iterator[list[T]]:
    """`lines` in lists of at most `size`; with `arrives`, of what comes within PATIENCE of the first.

    `length` says how many characters an item has. Where reading fails, what was read before comes first, then the
    DataError.
    """
    remaining = iter(lines)
    failure: DataError | None = None
    has_ended = False
    while failure is None and not has_ended:
        window: list[T] = []
        held, deadline = 0, 0.0
        try:
            while len(window) < size and held < CHARACTERS:
                if window and arrives is not None and not arrives(deadline - time.monotonic()):
                    break
                line = next(remaining)
                if not window:
                    deadline = time.monotonic() + PATIENCE
                window.append(line)
                held += length(line)
        except StopIteration:
            has_ended = True
        except DataError as error:
            failure = error
        if window:
            yield window
    if failure is not None:
        raise failure
