"""Compiles C with the machine's compiler, and reports it, because it takes seconds."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.compiling.cache import BuildError

if TYPE_CHECKING:
    from nmt.compiling.kept import Recipe

_TIMEOUT = 600  # seconds; a busy machine takes its time


@contextlib.contextmanager
def compiled(recipe: Recipe, compiler: Sequence[str], directory: Path) -> Iterator[Path]:
    """The library of a recipe, compiled, which the cores share, and linked; below `directory`, to be moved from there.

    Raises BuildError, and OSError where something cannot be written.
    """
    with tempfile.TemporaryDirectory(dir=directory, prefix="building-") as scratch:
        jobs = [[*compiler, *job] for job in recipe.jobs]
        if recipe.extra is not None:
            text = Path(scratch) / "callers.c"
            text.write_text(recipe.extra[0], encoding="utf-8")
            jobs.append([*compiler, *recipe.extra[1], str(text)])
        objects = [f"{scratch}/{number}.o" for number in range(len(jobs))]
        runs = [[*job, "-o", out] for job, out in zip(jobs, objects, strict=True)]
        with ThreadPoolExecutor(os.cpu_count()) as pool, _progress(len(jobs), directory) as advance:
            for _ in pool.map(_run, runs):
                advance()
        linked = Path(scratch) / "kernels.so"
        _run([*compiler, *recipe.link, "-shared", *objects, "-o", str(linked), "-lm"])
        linked.chmod(0o700)  # independent of the umask
        yield linked


@contextlib.contextmanager
def _progress(total: int, directory: Path) -> Iterator[Callable[[], object]]:
    """Say on stderr that so many files are compiled: on a terminal how many of them are, until they all are."""
    what = "compiling C kernels for this CPU, once"
    if sys.stderr is None:  # there is no place for the message
        yield lambda: None
    elif not sys.stderr.isatty():
        print(f"{what}: {total} files, kept in {directory}", file=sys.stderr, flush=True)
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
