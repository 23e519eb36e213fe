"""Messages about files that cannot be read or written."""

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
    """The reason of a failure in one line, such as a full disk."""
    if is_out_of_memory(error):
        return "out of memory"
    if isinstance(error, OSError):
        return _WORDS.get(error.errno or 0) or error.strerror or str(error) or type(error).__name__
    return str(error).strip().split("\n")[0] or type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the CPU's memory is exhausted; torch raises a RuntimeError for it."""
    return isinstance(error, MemoryError) or _NO_MEMORY in str(error)


def unreadable(path: Path, error: BaseException) -> UnreadableError:
    """The error for a file that cannot be read at this moment, whatever its content."""
    if isinstance(error, RefusedError):
        return UnreadableError(f"{path}: {error.strerror}")
    return UnreadableError(f"{path}: cannot be read now: {reason(error)}; nothing has been changed")


@contextlib.contextmanager
def naming(path: Path | str, *, unfinished: str | None = None) -> Iterator[None]:
    """In the block, an OSError without a file name, such as an error of writing, gets this one.

    So does one that names a temporary file or directory: one with `unfinished` in its name.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None or (unfinished is not None and unfinished in str(error.filename)):
            error.filename = str(path)
        raise
