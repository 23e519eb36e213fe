"""Lines in windows: large enough to be efficient, and bounded even if each line is very long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from nmt.errors import DataError

T = TypeVar("T")

PAUSE = 0.001
"""Seconds without a line that end a window: a sender that waits for the answer is not kept waiting, and one that is
just writing a file into the pipe has not stopped."""
PATIENCE = 0.02
"""Seconds, counted from its first line, after which a window takes only what is already here. Without it, one line
every half millisecond would delay the first until the window is full."""
CHARACTERS = 1 << 22
"""A window that holds so many gets no further line, so that long lines do not fill the memory."""

Arrives = Callable[[float], bool]
"""Whether the next line, or the end of the input, is here within so many seconds."""


def windows(
    lines: Iterable[T], *, size: int, arrives: Arrives | None = None, length: Callable[[Any], int] = len
) -> Iterator[list[T]]:
    """`lines` in lists of at most `size`; with `arrives`, of what comes until there is a PAUSE.

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
                if window and arrives is not None and not arrives(min(PAUSE, deadline - time.monotonic())):
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
