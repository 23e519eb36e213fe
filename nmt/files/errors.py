"""What is said of files that cannot be read or written."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from nmt.errors import UnreadableError
from nmt.files.safe import RefusedError

_WORDS = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}
_NO_MEMORY = "DefaultCPUAllocator: can't allocate memory"


def reason(error: BaseException) -> str:
    """Why something failed, in words on one line: of a full disk that it is full."""
    if is_out_of_memory(error):
        return "out of memory"
    if isinstance(error, OSError):
        return _WORDS.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
    return str(error).strip().split("\n")[0] or type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this process could not have more memory of the CPU; torch says so by a RuntimeError."""
    return isinstance(error, MemoryError) or _NO_MEMORY in str(error)


def unreadable(path: Path, error: BaseException) -> UnreadableError:
    """The error for a file that cannot be read at this moment, which says nothing about what it holds."""
    if isinstance(error, RefusedError):
        return UnreadableError(f"{path}: {error.strerror}")
    return UnreadableError(f"{path}: cannot be read now: {reason(error)}; nothing has been changed")


@contextlib.contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """In the block an OSError that names no file, as those of writing, names this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
