"""Compiles the C kernels of this package with the machine's own compiler, once, and keeps the library.

Each source is compiled once for each version of its kernels, see simd.h; with them go the functions that call kernels,
one for each list of kinds of parameters. The library depends on nothing but the C library: tensors are passed as
addresses, and the threads are those of the OpenMP runtime that torch has loaded. Compiling takes seconds; the result is
kept in a directory that only this user can write to, under a name made of the digest of everything it depends on and
that of its content.
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

from tqdm import tqdm

from nmt.ops.native.cache import BuildError, is_ours, own_directory

OPS = Path(__file__).parents[1]

_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math")
_NATIVE = {"x86_64": "-march=native", "AMD64": "-march=native"}
_TIMEOUT = 120  # seconds

VERSIONS = {
    "f32": ("-DTYPE=f32", "-DFIRST_VERSION"),
    "bf16": ("-DTYPE=bf16",),
    "bf16_team": ("-DTYPE=bf16", "-DIN_TEAM"),
}
"""Each kernel exists in these, by what ends their names; see simd.h."""


def sources() -> list[Path]:
    """The C files, beside the operations that have kernels."""
    return sorted(OPS.glob("*/*.c"))


def library(kernels: Sequence[Path], callers: str, *, openmp: bool) -> Path:
    """Path of the compiled library of C files and the text of one more, which is made now if there is none.

    Raises:
        BuildError: no compiler, or it does not compile this.
    """
    compiler = find_compiler()
    target = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else _NATIVE.get(platform.machine(), "")
    command = [*compiler, *_FLAGS, *([target] if target else []), *(["-fopenmp"] if openmp else [])]
    headers = sorted({path for source in (*kernels, Path(__file__)) for path in source.parent.glob("*.h")})
    digest = hashlib.sha256()
    texts = [path.read_bytes() for path in (*headers, *kernels)]
    other = [callers, repr(VERSIONS), " ".join(command), _version(compiler), _processor()]
    for part in (*texts, *(text.encode() for text in other)):
        digest.update(part + b"\0")
    directory, name = own_directory(), digest.hexdigest()[:32]
    for path in sorted(directory.glob(f"{name}-*.so")):
        if _intact(path):
            return path
    return _compile(command, kernels, callers, directory=directory, name=name)


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


def _content_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _intact(path: Path) -> bool:
    """Whether a kept library is what we wrote: a full disk or a crash may have cut it short."""
    try:
        return is_ours(path) and path.stem.endswith(f"-{_content_digest(path)}")
    except OSError:
        return False


def compilations(kernels: Sequence[Path]) -> list[list[str]]:
    """What a compiler is told besides its flags and where to write to, for each object."""
    include = f"-I{Path(__file__).parent}"
    return [
        [include, *macros, f"-DVERSION={version}", "-c", str(source)]
        for source in kernels
        for version, macros in VERSIONS.items()
    ]


def _compile(command: list[str], kernels: Sequence[Path], callers: str, *, directory: Path, name: str) -> Path:
    """Two steps, so that the OpenMP runtime stays unresolved: torch's is taken when the library is loaded.

    The first is some 12 seconds of work, which the cores share.
    """
    try:
        with tempfile.TemporaryDirectory(dir=directory, prefix="building-") as scratch:
            linked, text = Path(scratch) / "kernels.so", Path(scratch) / "callers.c"
            text.write_text(callers, encoding="utf-8")
            jobs = [*compilations(kernels), compilations([text])[0]]
            objects = [f"{scratch}/{number}.o" for number in range(len(jobs))]
            commands = [[*command, *job, "-o", out] for job, out in zip(jobs, objects, strict=True)]
            with ThreadPoolExecutor(os.cpu_count()) as pool, _progress(len(jobs), directory) as advance:
                for _ in pool.map(_run, commands):
                    advance()
            plain = [part for part in command if part != "-fopenmp"]
            _run([*plain, "-shared", *objects, "-o", str(linked), "-lm"])
            path = directory / f"{name}-{_content_digest(linked)}.so"
            linked.chmod(0o700)  # whatever the umask leaves to others
            os.replace(linked, path)  # complete or not at all, whoever else builds it at the same time
            return path
    except OSError as error:
        raise BuildError(f"{error.filename or directory}: {error.strerror or error}") from None


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


def _version(compiler: list[str]) -> str:
    command = [*compiler, "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        raise BuildError(f"{compiler[0]} cannot be run") from None
    return done.stdout


def _processor() -> str:
    """What -march=native depends on: a home directory may be shared by different machines."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
    return platform.processor()
