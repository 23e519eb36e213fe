"""Compiled libraries on disk, each under a name that identifies its sources, its compiler and its content.

The name has three digests: of the sources and all else that is compiled, of the compiler, and of the library itself. A
library is loaded only if no other user can have written it and its content has the digest in its name. One that cannot
be loaded here, such as that of another machine with the same home directory, stays, and another is compiled beside it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.compiling.cache import BuildError, is_ours, own_directory
from nmt.compiling.machine import compiler_identity, find_compiler

_LIBRARY = ".so"
_REFUSED = ".refused"
"""Of a library that could not be loaded when it was new, so that compiling it again is of no use."""


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
    made_from = _digest(*(path.read_bytes() for path in recipe.files), repr(recipe[1:]).encode())
    try:
        compiler = find_compiler()
    except BuildError as error:
        kept, problems = _kept(directory, f"{made_from}-")
        if kept is None:
            known = [f"; {path} is kept, but cannot be loaded here ({problem})" for path, problem in problems.items()]
            raise BuildError(f"{error}{''.join(known[:1])}") from None
        return kept
    name = f"{made_from}-{_digest(compiler_identity(compiler).encode())}-"
    if (kept := _compiled_before(directory, name)) is not None:
        return kept
    if not os.access(directory, os.W_OK | os.X_OK):
        raise BuildError(f"{directory}: cannot be written to, to keep libraries; set NMT_CACHE to another place")
    from nmt.compiling.build import alone, compiled  # late: what it imports takes longer than all of the above

    with alone(directory) as is_alone:
        if (kept := _compiled_before(directory, name)) is not None:  # while this process waited
            return kept
        with compiled(recipe, compiler, directory, is_alone=is_alone) as new:
            problem = _problem(new)
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
            problem = _problem(path)
            if problem is None:
                return path, problems
            problems[path] = problem
    return None, problems


def _problem(path: Path) -> str | None:
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
    return _digest(path.read_bytes())


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]
