"""Progress and remaining time of long work: a bar on a terminal, otherwise a line from time to time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

Advance = Callable[[int], object]
"""Called with the work done since its last call."""

INTERVAL = 60.0
"""Seconds between two lines if no bar can be shown."""


def no_progress(done: int) -> None:
    """Show nothing."""


@contextmanager
def progress(name: str, *, total: int, unit: str, done: int = 0, shown: bool = True) -> Iterator[Advance]:
    """Show on stderr how much of `total` is done, from `done` on, with speed and remaining time.

    On a terminal it is a bar; in a file of a batch system a line every INTERVAL seconds, so short
    work leaves no trace there.
    """
    if not shown:
        yield no_progress
    elif sys.stderr.isatty():
        with tqdm(
            total=total, initial=done, desc=name, unit=unit, unit_scale=True, leave=False, dynamic_ncols=True
        ) as bar:
            yield bar.update
    else:
        yield _Lines(name, total=total, unit=unit, done=done)


class _Lines:
    """Writes a line if INTERVAL seconds have passed since the last one."""

    def __init__(self, name: str, *, total: int, unit: str, done: int) -> None:
        self._name, self._total, self._unit = name, total, unit
        self._first = self._done = done
        self._started = self._last = time.monotonic()

    def __call__(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._last >= INTERVAL:
            self._last = now
            line = tqdm.format_meter(
                self._done, self._total, now - self._started, prefix=self._name, unit=self._unit, unit_scale=True,
                initial=self._first, bar_format="{desc}: {percentage:.0f}%, {n_fmt} of {total_fmt}{unit}, {rate_fmt}, "
                "{remaining} left",
            )  # fmt: skip
            print(line, file=sys.stderr, flush=True)
