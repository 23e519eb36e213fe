"""Compiled libraries on disk, each under a name that identifies its sources, its compiler and its content.

The name has three digests: of the sources and all else that is compiled, of the compiler, and of the library itself. A
library is loaded only if no other user can have written it and its content has the digest in its name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.compiling.cache import BuildError, is_ours, own_directory
from nmt.compiling.machine import compiler_identity, find_compiler


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
    """The library of a recipe: that which is kept, else compiled now.

    Where there is no compiler, a library that another one has made of the same will do.

    Raises BuildError where there is none and it cannot be compiled.
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
    except BuildError:
        kept = _kept(directory, f"{made_from}-")
        if kept is None:
            raise
        return kept
    name = f"{made_from}-{_digest(compiler_identity(compiler).encode())}-"
    kept = _kept(directory, name)
    if kept is not None:
        return kept
    from nmt.compiling.build import compiled  # late: what it imports takes longer than all of the above

    with compiled(recipe, compiler, directory) as new:
        path = directory / f"{name}{_content_digest(new)}.so"
        os.replace(new, path)  # atomic, even if another process builds it at the same time
    return path


def made_from_and_by(path: Path) -> str:
    """The digests of the sources and the compiler of the library `path`."""
    return path.stem.rpartition("-")[0]


def _kept(directory: Path, beginning: str) -> Path | None:
    """An intact library whose name begins so."""
    names = sorted(name for name in os.listdir(directory) if name.startswith(beginning) and name.endswith(".so"))
    return next((path for name in names if _intact(path := directory / name)), None)


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
