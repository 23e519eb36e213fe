"""Compiling C on the machine that runs it, once, and where the results are kept. It needs little else of nmt.

Libraries lie in a directory that no other user can write to: who can put a file there controls what this process runs.
The name of each has three digests: of the sources and all else that is compiled, of the compiler, and of the library
itself. A library is loaded only if no other user can have written it and its content has the digest in its name. One
that cannot be loaded here, such as that of another machine with the same home directory, stays, and another is compiled
beside it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import glob
import importlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt.system import cpu_info

_LIBRARY = ".so"
_REFUSED = ".refused"
"""Of a library that could not be loaded when it was new, so that compiling it again is of no use."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class BuildError(Exception):
    """Why there is no library, in a few words."""


def own_directory() -> Path:
    """The cache directory, created for this user only; if others can write to it, another directory that they cannot.

    It is NMT_CACHE, else nmt below XDG_CACHE_HOME, else ~/.cache/nmt.

    Raises:
        BuildError: it cannot be made.
    """
    chosen, base = os.environ.get("NMT_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        directory = Path(chosen) if chosen else Path(base or Path.home() / ".cache") / "nmt"
    except RuntimeError:
        raise BuildError("there is no home directory to keep them in; set NMT_CACHE") from None
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = _open_to_others(directory)
    except OSError as error:
        where = error.filename or directory
        raise BuildError(f"{where}: {error.strerror or error}; set NMT_CACHE to another place") from None
    return directory if found is None else _elsewhere(directory, found)


def is_ours(path: Path) -> bool:
    """Whether `path` is a regular file, no link, that only we can have written."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid in _trusted() and not found.st_mode & _OTHERS


def _open_to_others(directory: Path) -> str | None:
    """How another user could write into an existing directory; None if no other user can."""
    link = directory.lstat()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in _trusted():
        return "is a link that another user has made"
    real = Path(os.path.realpath(directory))  # which no link of another user can change any more
    found = real.stat()
    if found.st_uid not in _trusted():
        return "belongs to another user"
    if found.st_mode & _OTHERS:
        return f"can be written to by others (mode {stat.S_IMODE(found.st_mode):04o})"
    for parent in real.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"can be replaced by others, who can write to {parent}"
    return None


def _trusted() -> tuple[int, int]:
    """This user and root."""
    return os.geteuid(), 0


@functools.cache
def _elsewhere(directory: Path, problem: str) -> Path:
    """A directory that later processes of this user can use again, else one for this process only, with a message."""
    import logging  # late, as few need these
    import tempfile

    other = Path(tempfile.gettempdir()) / f"nmt-{os.geteuid()}"
    try:
        other.mkdir(mode=0o700, exist_ok=True)
        lasting = not other.is_symlink() and _open_to_others(other) is None
    except OSError:
        lasting = False
    if not lasting:
        from nmt.light.output import remove, temporary_name

        other = Path(temporary_name(os.path.join(tempfile.gettempdir(), "nmt-kernels"), prefix=""))
        try:
            other.mkdir(mode=0o700)
        except OSError as error:
            raise BuildError(f"{directory}: {problem}; {error.filename}: {error.strerror}") from None
        atexit.register(remove, str(other))
    advice = "chmod go-w it, or set NMT_CACHE"
    message = "kernels: %s %s, so they are kept in %s instead; %s"
    logging.getLogger(__name__).warning(message, directory, problem, other, advice)
    return other


def find_compiler() -> list[str]:
    """The command in CC, else the first existing one of cc, gcc and clang."""
    from shutil import which  # late, as installations that bring libraries need none

    chosen = os.environ.get("CC", "").split()
    if chosen:
        return chosen
    for name in ("cc", "gcc", "clang"):
        found = which(name)
        if found:
            return [found]
    raise BuildError("there is no C compiler (cc, gcc, clang, or CC in the environment)")


def compiler_identity(compiler: Sequence[str]) -> str:
    """A command, and of each program in it the file with its size and its time, which another compiler has not.

    Asking a compiler for its version takes longer than all else that a start with a kept library does.

    Raises BuildError where there is no such program.
    """
    from shutil import which

    programs = [which(word) for word in compiler]
    if programs[0] is None:
        raise BuildError(f"{compiler[0]} cannot be run")
    files = [os.path.realpath(program) for program in programs if program]
    states = map(os.stat, files)
    return repr((compiler, files, [(state.st_size, state.st_mtime_ns) for state in states]))


def processor() -> str:
    """What -march=native depends on: a home directory may be shared by different machines."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        wanted = ("model name", "flags", "Features", "CPU part")
        return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
    return os.uname().machine


def has_instructions(flags: Sequence[str]) -> bool:
    """Whether Linux says that this processor has all that a compiler's flags such as -mavx2 stand for."""
    known = cpu_info("flags").replace("_", "").split()
    return all(flag.removeprefix("-m").replace("-", "") in known for flag in flags if "=" not in flag)


ROOT = Path(__file__).parents[1]


class Recipe(NamedTuple):
    """What a library is made from."""

    files: Sequence[Path]
    """The sources, and all included headers of this package."""
    jobs: Sequence[Sequence[str]]
    """The compiler's options for each object, except the output file."""
    link: Sequence[str]
    """The compiler's options for the library."""
    extra: tuple[str, Sequence[str]] | None = None
    """The text of one more source, and its compiler options."""
    facts: str = ""
    """What else the library depends on."""


def engine_recipe(*, everywhere: bool = False) -> Recipe:
    """The engine with the kernels that suit this processor best, or `everywhere`, with those for all processors."""
    from nmt.light.sources import FLAGS, TABLES, compilations

    machine, only = os.uname().machine, None
    if not everywhere and cpu_info("flags"):
        only = next((name for name, needed in TABLES.get(machine, {}).items() if has_instructions(needed)), None)
    flags = [*FLAGS, "-fPIC", "-fvisibility=hidden", f"-I{ROOT / 'ops/native'}"]
    jobs = [[*flags, *one.flags, "-c", str(ROOT / one.source)] for one in compilations(machine, only=only)]
    where = "light/src/*.[ch]", "live/*.c", "ops/*/*.[ch]"
    found = sorted(path for pattern in where for path in glob.glob(f"{ROOT}/{pattern}"))
    return Recipe([*map(Path, found)], jobs, ["-pthread"])


def prebuilt(kind: str, *made_from: Any) -> Path | None:
    """The engine or the kernels that a wheel brings, found by the function `kind` of `nmt.prebuilt.libraries`."""
    return getattr(importlib.import_module("nmt.prebuilt.libraries"), kind)(*made_from)


def library(recipe: Recipe) -> Path:
    """The library of a recipe, which can be loaded: that which is kept, else compiled now.

    Where there is no compiler, a library that another one has made of the same will do. Of several processes that want
    the same, one compiles it.

    Raises BuildError where there is none and it cannot be compiled, or loaded.
    """
    directory = own_directory()
    try:
        return _library(recipe, directory)
    except OSError as error:
        raise BuildError(f"{error.filename or directory}: {error.strerror or error}") from None


def _library(recipe: Recipe, directory: Path) -> Path:
    made_from = digest(*(path.read_bytes() for path in recipe.files), repr(recipe[1:]).encode())
    try:
        compiler = find_compiler()
    except BuildError as error:
        kept, problems = _kept(directory, f"{made_from}-")
        if kept is None:
            known = [f"; {path} is kept, but cannot be loaded here ({problem})" for path, problem in problems.items()]
            raise BuildError(f"{error}{''.join(known[:1])}") from None
        return kept
    name = f"{made_from}-{digest(compiler_identity(compiler).encode())}-"
    if (kept := _compiled_before(directory, name)) is not None:
        return kept
    if not os.access(directory, os.W_OK | os.X_OK):
        raise BuildError(f"{directory}: cannot be written to, to keep libraries; set NMT_CACHE to another place")
    from nmt.compiling.build import alone, compiled  # late: what it imports takes longer than all of the above

    with alone(directory) as is_alone:
        if (kept := _compiled_before(directory, name)) is not None:  # while this process waited
            return kept
        with compiled(recipe, compiler, directory, is_alone=is_alone) as new:
            problem = problem_of(new)
            path = directory / f"{name}{_content_digest(new)}{_LIBRARY if problem is None else _REFUSED}"
            os.replace(new, path)  # atomic, even if another process builds it at the same time
    if problem is not None:
        raise _refusal(path, problem)
    return path


def _compiled_before(directory: Path, name: str) -> Path | None:
    """What this compiler has made; BuildError if that cannot be loaded, and could not be when it was new."""
    kept, problems = _kept(directory, name)
    for path, problem in problems.items():
        if kept is None and path.suffix == _REFUSED:
            raise _refusal(path, problem)
    return kept


def _refusal(path: Path, problem: str) -> BuildError:
    advice = "set CC to another compiler or NMT_CACHE to another place, or delete it to compile again"
    return BuildError(f"{path}: was compiled here, but cannot be loaded ({problem}); {advice}")


def made_from_and_by(path: Path) -> str:
    """The digests of the sources and the compiler of the library `path`."""
    return path.stem.rpartition("-")[0]


def _kept(directory: Path, beginning: str) -> tuple[Path | None, dict[Path, str]]:
    """An intact library whose name begins so and that can be loaded, and why others before it cannot be."""
    problems: dict[Path, str] = {}
    for name in sorted(os.listdir(directory)):
        path = directory / name
        if name.startswith(beginning) and path.suffix in (_LIBRARY, _REFUSED) and _intact(path):
            problem = problem_of(path)
            if problem is None:
                return path, problems
            problems[path] = problem
    return None, problems


def problem_of(path: Path) -> str | None:
    """Why a library cannot be loaded here, None if it can; it stays loaded, for whoever wants it next."""
    with path.open("rb") as stream:
        head = stream.read(64)
    if head.startswith(b"\x7fELF\x02\x01"):  # 64 bits, little-endian; a table of `count` entries ends it
        fields = ((40, 8), (58, 2), (60, 2))
        table, size, count = (int.from_bytes(head[start : start + width], "little") for start, width in fields)
        if table + size * count > path.stat().st_size:
            return "it is cut short"  # of which loading it makes a SIGBUS
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return str(error).removeprefix(f"{path}: ")
    return None


def _intact(path: Path) -> bool:
    """Whether a kept library is what we wrote: a full disk or a crash may have cut it short."""
    try:
        return is_ours(path) and path.stem.endswith(f"-{_content_digest(path)}")
    except OSError:
        return False


def _content_digest(path: Path) -> str:
    return digest(path.read_bytes())


def digest(*parts: bytes) -> str:
    import hashlib

    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()[:16]
