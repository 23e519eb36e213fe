"""Whole files, read and written by plain system calls: errors are OSErrors with number and file name."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from nmt.files.errors import naming, unreadable
from nmt.files.new import replacing
from nmt.files.safe import check_size, memory, open_model_file, read_bounded

_BLOCK = 1 << 20
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


def read_file(path: Path, *, largest: int | None = None) -> bytes:
    """All bytes of a file of a run or model, which has no more than `largest`, or than there is memory.

    Raises:
        UnreadableError: they cannot be read, for whatever reason: it is missing, a lack of rights, a file server that
            does not answer, too little memory; or it is no regular file of that directory, see `nmt.files.safe`.
    """
    try:
        with open_model_file(path) as stream:
            return read_bounded(stream, largest=memory() if largest is None else largest)
    except (OSError, MemoryError) as error:
        raise unreadable(path, error) from error


def check_readable(path: Path) -> None:
    """Read a file to its end; raises as `read_file`, but needs no memory. For what libraries read by mapping it."""
    try:
        with open_model_file(path) as stream:
            check_size(stream, largest=memory())
            while stream.read(_BLOCK):
                pass
    except (OSError, MemoryError) as error:
        raise unreadable(path, error) from error


def is_file(path: Path) -> bool:
    """Whether there is such a file.

    `Path.is_file` is not asked: while a file server fails, that of newer versions of Python says that there is none.

    Raises:
        UnreadableError: that cannot be told at this moment.
    """
    return stat.S_ISREG(_mode(path))


def is_there(path: Path) -> bool:
    """Whether anything has that name; UnreadableError if this cannot be determined at this moment."""
    return _mode(path) != 0


def is_folder(path: Path) -> bool:
    """Whether there is such a directory; UnreadableError if this cannot be determined at this moment."""
    return stat.S_ISDIR(_mode(path))


def write_file(path: Path, content: bytes) -> None:
    """Write a file, under its name at once, and wait until it is on the disk. An OSError names it."""
    with naming(path), path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Write a file that is there whole or, after an OSError, which names it, as it was before."""
    with naming(path), replacing(path) as stream:
        stream.write(content)


def sync(path: Path) -> None:
    """Wait until a file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode(path: Path) -> int:
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in _ABSENT:
            return 0
        raise unreadable(path, error) from error
