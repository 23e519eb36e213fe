"""How much CPU time a process and its workers have used. Needs the standard library only."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

_USER_TIME = 11
"""Place of `utime` in /proc/PID/stat after the name of the program; system time and those of its children follow."""


def used_cpu_seconds(*, proc: Path = Path("/proc")) -> float:
    """User and system time of this process with all its threads, and of its children, in seconds.

    Children that have ended and were waited for count, with theirs. Of those still at work the ones that
    `multiprocessing` has started count where there is a file /proc/PID/stat, which is Linux.
    """
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    running = [_of_process(proc, child.pid) for child in multiprocessing.active_children() if child.pid is not None]
    return own + sum(running)


def _of_process(proc: Path, pid: int) -> float:
    """CPU seconds of another process and of the children it has waited for; 0 where that cannot be told."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        ticks = text.rpartition(")")[2].split()[_USER_TIME : _USER_TIME + 4]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return 0.0


class CpuClock:
    """CPU seconds since it was made; it never goes back, as a child does that ends between two readings."""

    def __init__(self, read: Callable[[], float] = used_cpu_seconds) -> None:
        self._read = read
        self._start = read()
        self._seconds = 0.0

    def seconds(self) -> float:
        """Read it."""
        self._seconds = max(self._seconds, self._read() - self._start)
        return self._seconds
