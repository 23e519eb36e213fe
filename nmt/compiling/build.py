"""Compiles C with the machine's own compiler, once, and keeps the library. Needs nothing else of nmt.

Compiling takes seconds. The result is kept in a directory that only this user can write to, under a name made of the
digest of everything it depends on and that of its content.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nmt.compiling.cache import BuildError, is_ours, own_directory

_TIMEOUT = 600  # seconds; a busy machine takes its time


def find_compiler() -> list[str]:
    """The command of CC, else cc, gcc or clang, whichever is there."""
    chosen = os.environ.get("CC", "").split()
    if chosen:
        return chosen
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return [found]
    raise BuildError("there is no C compiler (cc, gcc, clang, or CC in the environment)")


class Kept:
    """A library by the digest of all that it is made from: the files and the texts."""

    def __init__(self, files: Sequence[Path], texts: Sequence[str]) -> None:
        digest = hashlib.sha256()
        for part in (*(path.read_bytes() for path in files), *(text.encode() for text in texts)):
            digest.update(part + b"\0")
        self._directory, self._name = own_directory(), digest.hexdigest()[:32]

    @property
    def path(self) -> Path | None:
        """That which has been made before, if it is intact."""
        found = sorted(self._directory.glob(f"{self._name}-*.so"))
        return next((path for path in found if _intact(path)), None)

    def made(
        self, commands: Sequence[Sequence[str]], link: Sequence[str], *, extra: tuple[str, list[str]] | None = None
    ) -> Path:
        """Compile, which the cores share, and link. `extra`: the text of one more source, and how it is compiled."""
        try:
            with tempfile.TemporaryDirectory(dir=self._directory, prefix="building-") as scratch:
                jobs = [list(command) for command in commands]
                if extra is not None:
                    text = Path(scratch) / "callers.c"
                    text.write_text(extra[0], encoding="utf-8")
                    jobs.append([*extra[1], str(text)])
                objects = [f"{scratch}/{number}.o" for number in range(len(jobs))]
                runs = [[*job, "-o", out] for job, out in zip(jobs, objects, strict=True)]
                with ThreadPoolExecutor(os.cpu_count()) as pool, _progress(len(jobs), self._directory) as advance:
                    for _ in pool.map(_run, runs):
                        advance()
                linked = Path(scratch) / "kernels.so"
                _run([*link, "-shared", *objects, "-o", str(linked), "-lm"])
                path = self._directory / f"{self._name}-{_content_digest(linked)}.so"
                linked.chmod(0o700)  # whatever the umask leaves to others
                os.replace(linked, path)  # complete or not at all, whoever else builds it at the same time
                return path
        except OSError as error:
            raise BuildError(f"{error.filename or self._directory}: {error.strerror or error}") from None


def _content_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _intact(path: Path) -> bool:
    """Whether a kept library is what we wrote: a full disk or a crash may have cut it short."""
    try:
        return is_ours(path) and path.stem.endswith(f"-{_content_digest(path)}")
    except OSError:
        return False


@contextlib.contextmanager
def _progress(total: int, directory: Path) -> Iterator[Callable[[], object]]:
    """Say on stderr that so many files are compiled: on a terminal how many of them are, until they all are."""
    what = "compiling C kernels for this CPU, once"
    if sys.stderr is None:  # there is nobody to tell
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


def compiler_version(compiler: list[str]) -> str:
    """What the compiler says of itself."""
    command = [*compiler, "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise BuildError(f"{compiler[0]} cannot be run") from None
    return done.stdout


def processor() -> str:
    """What -march=native depends on: a home directory may be shared by different machines."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
    return platform.processor()
