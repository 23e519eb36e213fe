"""How fast a process gets on, validations and checkpoints included, and how long it will still take."""

from __future__ import annotations

import time
from typing import NamedTuple


class Outlook(NamedTuple):
    """How far training has come, and when it will end."""

    seconds: float | None
    """Time until the end, if known."""
    share: float | None
    """The finished share of the way to this end."""
    last: int | None
    """The last update, if that and not the time limit is this end."""


class TimeLeft:
    """Updates over time since the process began to train; what earlier processes did is left out.

    They may have run on another machine, or at the same time as other work.
    """

    def __init__(self, *, step: int) -> None:
        """`step`: updates done before now."""
        self._first = step
        self._started = time.monotonic()

    def outlook(self, *, step: int, last: int | None, deadline: float | None) -> Outlook:
        """After update `step`, on the way to update `last` or the `deadline` on `time.monotonic()`'s clock.

        The end is whichever comes first. Its time is unknown where neither is set, or only `last` and no update has
        been done yet.
        """
        now = time.monotonic()
        passed = now - self._started
        by_update = None
        if last is not None and step > self._first:
            by_update = max(0, last - step) * passed / (step - self._first)
        by_limit = None if deadline is None else max(0.0, deadline - now)
        if by_limit is not None and (by_update is None or by_limit < by_update):
            return Outlook(by_limit, passed / (passed + by_limit) if passed else 0.0, None)
        return Outlook(by_update, None if last is None else min(1.0, step / last), last)

    def deadline(self, used: float, *, first: float, last: float | None) -> float | None:
        """The time on `time.monotonic()`'s clock at which `used` will reach `last`, at the present rate.

        It was `first` when this process began to train. None without `last`, or while nothing more has been used.
        """
        if last is None or used <= first:
            return None
        now = time.monotonic()
        return now + max(0.0, last - used) * (now - self._started) / (used - first)


def duration(seconds: float) -> str:
    """`seconds` as people say them: 45 s, 12 min, 3 h 05 min, 2 d 04 h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"
