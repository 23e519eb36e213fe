"""The machine as this process has it: CPU, CPU time, settings of native libraries, terminal, home directory.

Needs the standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import TextIO

from nmt.errors import printable


def cpu_info(field: str) -> str:
    """What Linux says of the processor under a name as `model name` or `vendor_id`; empty where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def available_cores() -> int:
    """Logical cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cores() -> int:
    """Of these, as many as a container's limit on CPU time keeps busy; at least 1."""
    quota = cpu_quota()
    return available_cores() if quota is None else max(1, min(available_cores(), int(quota)))


def cpu_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float | None:
    """CPUs' worth of time that Linux control groups grant this process (docker --cpus); None without a limit."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        controllers, _, path = line.partition(":")[2].partition(":")
        top, files = root, ["cpu.max"]  # of version 2, in which controllers have no name
        if "cpu" in controllers.split(","):
            top, files = root / controllers, ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        elif controllers:
            continue
        # The folder of a group and those above it; inside a container the path may be one of the host's.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for folder in (top.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)):
            with contextlib.suppress(OSError, ValueError):  # "max" is no number
                texts = [(folder / file).read_text(encoding="utf-8") for file in files]
                quota, period = map(int, " ".join(texts).split())
                quotas += [quota / period] if quota > 0 else []
    return min(quotas, default=None)


_USER_TIME = 11
"""Place of `utime` in /proc/PID/stat after the name of the program; system time and those of its children follow."""


def used_cpu_seconds(*, proc: Path = Path("/proc")) -> float:
    """User and system time of this process with all its threads, and of its children, in seconds.

    Children that have ended and were waited for count, with theirs. Of those still at work the ones that
    `multiprocessing` has started count where there is a file /proc/PID/stat, which is Linux.
    """
    import multiprocessing  # late: most commands do not ask

    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    for child in multiprocessing.active_children():
        with contextlib.suppress(OSError, ValueError):  # it has just ended, or there is no such file
            text = (proc / str(child.pid) / "stat").read_text(encoding="utf-8", errors="replace")
            ticks = text.rpartition(")")[2].split()[_USER_TIME : _USER_TIME + 4]
            own += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return own


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


# oneDNN, and ideep above it, keep 1,024 compiled shapes of products each, and the heap grew from update to update. With
# 64 training is no slower (docs/benchmarks/training.md); far fewer would not hold the products of one step of a loop.
CACHES = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "64"}

# A search comes back to the same few hundred shapes, batch after batch, and needs no more memory than they do.
SEARCH_CACHE = "512"

# Threads wait for each other thousands of times in an update, mostly for microseconds. Put to sleep at once they lose
# much of the speed; spinning without end they take the cores of whatever else runs (docs/benchmarks/training.md).
WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


_prepared_before_torch = False


def prepare_environment(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set what the user has not: kernel caches, how threads wait, their number where a container limits CPU time."""
    global _prepared_before_torch
    if environment is os.environ and "torch" not in sys.modules:
        _prepared_before_torch = True
    for name, value in CACHES.items():
        environment.setdefault(name, value)
    if not any(name in environment for name in WAITING):
        environment.update(WAITING)
    if "WORLD_SIZE" in environment:  # torch's warnings of lost connections are pages long, and ours say it in a line
        environment.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if usable_cores() < available_cores():  # OpenMP knows which cores a process may use, but not how much of them
        environment.setdefault("OMP_NUM_THREADS", str(usable_cores()))


def is_one_of_several() -> bool:
    """Whether torchrun has started this process as one of several."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def is_prepared() -> bool:
    """Whether torch, which has been imported, has found these settings, or some of the user's own."""
    return _prepared_before_torch or any(name in os.environ for name in WAITING)


def keep_more_kernels(environment: MutableMapping[str, str] = os.environ) -> None:
    """For commands that search and do not train, before they import torch: larger kernel caches, unless user-set."""
    for name, value in CACHES.items():
        if environment.get(name) == value:
            environment[name] = SEARCH_CACHE


# Training allocates and frees the same large tensors in every step. By default glibc maps each of them anew, and the
# kernel clears every page again: 16 % of the time of a step. So the allocator keeps them. The names are those of
# <malloc.h>, part of its binary interface, so they never change.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3

KEEP = 1 << 30
"""Bytes: blocks up to this size come from the heap, and so much may stay unused at its end."""
GROWTH = 64 << 20
"""Bytes by which the heap grows beyond each request."""
OLD_LIMIT = 32 << 20
"""Bytes: the largest M_MMAP_THRESHOLD that older versions of glibc take."""


def keep_large_blocks() -> bool:
    """Raise M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD; say whether that was done.

    Call it before the first large allocation. Does nothing without glibc (macOS, Windows, musl), and nothing
    where the user has set one of these in the environment.
    """
    if any(f"MALLOC_{name}_" in os.environ for name in ("MMAP_THRESHOLD", "TRIM_THRESHOLD", "TOP_PAD")):
        return False
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018  (only glibc has it; musl's mallopt does nothing)
        mallopt = libc.mallopt
    except (OSError, AttributeError, TypeError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    mapped = mallopt(M_MMAP_THRESHOLD, KEEP) or mallopt(M_MMAP_THRESHOLD, OLD_LIMIT)
    return bool(mapped and mallopt(M_TRIM_THRESHOLD, KEEP) and mallopt(M_TOP_PAD, GROWTH))


@contextlib.contextmanager
def frozen_objects() -> Iterator[None]:
    """In the block Python does not look for garbage among the objects that are there now: each update makes thousands,
    so all were looked at again and again, 8 % of a training's time. Does nothing if some are frozen already."""
    own = gc.get_freeze_count() == 0
    if own:
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        if own:
            gc.unfreeze()


USUAL_COLUMNS = 80
"""Where the terminal does not say."""


def columns(stream: TextIO) -> int | None:
    """Width of the terminal that `stream` writes to; None where it is a file or a pipe."""
    try:
        if not stream.isatty():
            return None
        return os.get_terminal_size(stream.fileno()).columns or USUAL_COLUMNS
    except (OSError, ValueError):  # it is closed, or no real file
        return None


def wrapped(line: str, width: int, *, indent: int = 2) -> str:
    """`line` in lines of at most `width` columns, where that can be, the others begun with `indent` spaces.

    Cut where two spaces stand, else at one; a word that is too long, such as a path, stays whole.
    """
    from tqdm.utils import disp_len  # late, for what is written to a file is not wrapped

    if disp_len(line) <= width:
        return line
    rows = [""]
    for gap, piece in re.findall(r"( *)(\S+(?: \S+)*)", line):
        words = [piece] if indent + disp_len(piece) <= width else piece.split(" ")
        for place, word in enumerate(words):
            space = gap if place == 0 else " "
            if not rows[-1].strip() or disp_len(rows[-1]) + len(space) + disp_len(word) <= width:
                rows[-1] += space + word
            else:
                rows.append(" " * indent + word)
    return "\n".join(rows)


def expanded(path: str) -> str:
    """`path` with the home directory in place of `~` or `~user` at its start; ValueError where there is none."""
    if not path.startswith("~"):
        return path
    found = os.path.expanduser(path)
    if found.startswith("~"):
        name = printable(path.partition("/")[0])
        raise ValueError(f"'{name}' is no home directory; './{name}' means a file of that name")
    return found
