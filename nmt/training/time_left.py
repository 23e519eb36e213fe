"""How fast a process gets on, validations and checkpoints included, and how long it will still take."""

from __future__ import annotations

import time


class TimeLeft:
    """Updates over time since the process began to train; what earlier processes did is left out.

    They may have run on another machine, or beside other work.
    """

    def __init__(self, *, step: int) -> None:
        """`step`: updates done before now."""
        self._first = step
        self._started = time.monotonic()

    def seconds_left(self, *, step: int, last: int | None, deadline: float | None) -> float | None:
        """Seconds until update `last` or the `deadline` on `time.monotonic()`'s clock, whichever comes first.

        None where neither is set, or only `last` and no update has been done yet.
        """
        now = time.monotonic()
        known = [] if deadline is None else [max(0.0, deadline - now)]
        if last is not None and step > self._first:
            known.append(max(0, last - step) * (now - self._started) / (step - self._first))
        return min(known, default=None)


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
