"""Compiles C with the machine's compiler, one process at a time, and reports it, because it takes seconds."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.compiling import BuildError
from nmt.errors import counted
from nmt.files import new_directory
from nmt.light.output import DAY, is_abandoned, remove

if TYPE_CHECKING:
    from nmt.compiling import Recipe

_TIMEOUT = 600  # seconds; a busy machine takes its time
_LONGEST_WAIT = 300  # seconds for another process, which may have been stopped
_BUILDING = "building-"
"""The beginning of the names of folders in which libraries are made."""
_MADE_ALONE = f"{_BUILDING}alone-"


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[bool]:
    """Wait until no other process compiles for `directory`; whether that is so: it is not known without locks.

    The kernel gives the lock back when a process ends, however that happens. What processes that were killed have left
    is deleted.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    end, told, is_alone = time.monotonic() + _LONGEST_WAIT, False, False
    try:
        while not is_alone and time.monotonic() < end:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_alone = True
            except BlockingIOError:
                if not told and sys.stderr is not None:
                    print(f"another process compiles C kernels into {directory}; waiting for it", file=sys.stderr)
                told = True
                time.sleep(0.1)
            except OSError:  # a file system without locks
                break
        for left in directory.glob(f"{_BUILDING}*"):
            is_known = is_alone and left.name.startswith(_MADE_ALONE)
            if is_abandoned(str(left), age=0 if is_known else DAY):
                remove(str(left))
        yield is_alone
    finally:
        with contextlib.suppress(OSError):  # for a process that was forked meanwhile has the descriptor, too
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


@contextlib.contextmanager
def compiled(recipe: Recipe, compiler: Sequence[str], directory: Path, *, is_alone: bool) -> Iterator[Path]:
    """The library of a recipe, compiled, which the cores share, and linked; below `directory`, to be moved from there.

    Raises BuildError, and OSError where something cannot be written.
    """
    with new_directory(directory / "kernels", prefix=_MADE_ALONE if is_alone else _BUILDING) as scratch:
        jobs = [[*compiler, *job] for job in recipe.jobs]
        if recipe.extra is not None:
            text = scratch / "callers.c"
            text.write_text(recipe.extra[0], encoding="utf-8")
            jobs.append([*compiler, *recipe.extra[1], str(text)])
        objects = [f"{scratch}/{number}.o" for number in range(len(jobs))]
        runs = [[*job, "-o", out] for job, out in zip(jobs, objects, strict=True)]
        with ThreadPoolExecutor(os.cpu_count()) as pool, _progress(len(jobs), directory) as advance:
            for _ in pool.map(_run, runs):
                advance()
        linked = scratch / "kernels.so"
        _run([*compiler, *recipe.link, "-shared", *objects, "-o", str(linked), "-lm"])
        linked.chmod(0o700)  # independent of the umask
        yield linked
        remove(str(scratch))


@contextlib.contextmanager
def _progress(total: int, directory: Path) -> Iterator[Callable[[], object]]:
    """Say on stderr that so many files are compiled: on a terminal how many of them are, until they all are."""
    what = "compiling C kernels for this CPU, once"
    if sys.stderr is None:  # there is no place for the message
        yield lambda: None
    elif not sys.stderr.isatty():
        print(f"{what}: {counted(total, 'file')}, kept in {directory}", file=sys.stderr, flush=True)
        yield lambda: None
    else:
        from tqdm import tqdm  # late: it is seldom needed

        with tqdm(
            total=total, leave=False, dynamic_ncols=True, bar_format=f"{what}: {{n_fmt}} of {{total_fmt}}"
        ) as bar:
            yield bar.update


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{command[0]} took more than {_TIMEOUT} seconds") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["failed"]
        raise BuildError(f"{command[0]}: {lines[0].strip()}")
