"""Reading files that someone else may have made: only regular ones, of bounded size, inside their folder.

A model directory may come from anywhere: reading a pipe in it would block, and a link could lead to a device or to
unrelated files. All errors are OSError with a text in `strerror` that follows the file's name.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MIB = 1 << 20
LARGEST_CONFIG = MIB
"""Bytes of a configuration."""
LARGEST_VOCABULARY = 64 * MIB
"""Bytes of a file of a tokenizer: some millions of tokens."""
LARGEST_RECORD = 16 * MIB
"""Bytes of what only lists checkpoints, sums or hyper-parameters."""
LARGEST_LOG = 1024 * MIB
"""Bytes of the log of a run: some millions of lines."""

CHECKPOINTS = "checkpoints"
"""The directory of a run that holds a directory for each checkpoint."""

_SEARCH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""To pass through a directory, which may be allowed even if listing it is not."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Non-blocking: opening a pipe without a writer would block forever."""


class RefusedError(OSError):
    """A file that exists but must not be read or written."""


def model_folder(file: Path) -> Path:
    """The directory of the run or model that a file of one belongs to, of a checkpoint's that of the run around it."""
    folder = file.parent
    if folder.name == CHECKPOINTS:
        return folder.parent
    return folder.parent.parent if folder.parent.name == CHECKPOINTS else folder


def open_model_file(path: Path) -> BinaryIO:
    """Open a file of a run or model, which must lie in it; see `open_inside`."""
    return open_inside(path, within=model_folder(path))


def open_inside(path: Path, *, within: Path) -> BinaryIO:
    """Open a regular file that really lies in the directory `within`, whatever links are on the way to that one.

    Links inside `within` may point to each other. Nobody can exchange a part of the way in the meantime.

    Raises:
        OSError: no such file. RefusedError: not a regular file, or a link leads out of `within`.
    """
    root, real = os.path.realpath(within), os.path.realpath(path)
    if os.path.commonpath([root, real]) != root:
        raise _leads_out(path, root=root, within=within)
    *folders, name = os.path.relpath(real, root).split(os.sep)
    directory = os.open(root, _SEARCH)
    try:
        for folder in folders:
            inner = os.open(folder, _SEARCH | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
        return _regular(os.open(name, _READ | os.O_NOFOLLOW, dir_fd=directory), path)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(directory)


def open_regular(path: Path) -> BinaryIO:
    """Open a file that the user has named: wherever it lies, but a regular one. OSError otherwise."""
    return _regular(os.open(path, _READ), path)


def read_inside(path: Path, *, within: Path, largest: int) -> bytes:
    """The content of a file in the directory `within`; OSError as `open_inside`, and for more than `largest` bytes."""
    with open_inside(path, within=within) as stream:
        return read_bounded(stream, largest=largest)


def read_bounded(stream: BinaryIO, *, largest: int) -> bytes:
    """The content of a file that has been opened; RefusedError if it has more than `largest` bytes."""
    size = check_size(stream, largest=largest)
    content = stream.read(size + 1)
    if len(content) > size:  # it is growing
        content += stream.read(max(0, largest + 1 - len(content)))
    if len(content) > largest:
        raise _too_large(stream, largest)
    return content


def check_size(stream: BinaryIO, *, largest: int) -> int:
    """The bytes of a file that has been opened; RefusedError if they are more than `largest`."""
    size = os.fstat(stream.fileno()).st_size
    if size > largest:
        raise _too_large(stream, largest)
    return size


def _too_large(stream: BinaryIO, largest: int) -> RefusedError:
    limit = f"{largest / MIB:,.0f} MiB" if largest >= MIB else f"{largest} bytes"
    return RefusedError(errno.EFBIG, f"larger than {limit}, which no such file is", stream.name)


def memory() -> int:
    """Bytes of this machine's memory: no file is read whole that is larger."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_directory(path: Path, *, within: Path) -> None:
    """Raise OSError if the directory `path`, as far as it is there, lies outside of the directory `within`."""
    root = os.path.realpath(within)
    if os.path.commonpath([root, os.path.realpath(path)]) != root:
        raise _leads_out(path, root=root, within=within)


def path_of(stream: BinaryIO) -> str:
    """A path to an open file for libraries that take only paths: it opens that file, even if it was renamed."""
    return f"/dev/fd/{stream.fileno()}"


def own_file(path: str, flags: int) -> int:
    """`opener` for `open`, to write to a file of ours in a directory that others may have made.

    Raises OSError where a link or anything but a regular file has the name.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if os.path.islink(path):
            raise RefusedError(errno.ELOOP, "is a link, which is not followed for writing; remove it", path) from None
        raise OSError(error.errno, error.strerror, path) from None
    return _checked(descriptor, path)


def _regular(descriptor: int, path: str | os.PathLike[str]) -> BinaryIO:
    # The name goes with the stream, for messages: a stream of a descriptor has only a number.
    return open(path, "rb", opener=lambda _path, _flags: _checked(descriptor, path))


def _checked(descriptor: int, path: str | os.PathLike[str]) -> int:
    """`descriptor`, if it is that of a regular file."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise RefusedError(errno.EISDIR, "is a directory, not a file", os.fspath(path))
    raise RefusedError(errno.EINVAL, "is not a regular file", os.fspath(path))


def _leads_out(path: Path, *, root: str, within: Path) -> RefusedError:
    """The message about a link that leads out of a directory, found on the way to `path`."""
    link = path
    for place in (*reversed(path.parents), path):
        if place.is_symlink() and os.path.commonpath([root, os.path.realpath(place.parent)]) == root:
            link = place
            break
    where = "it" if link == path else str(link)
    what = f"{where} is a link to {os.readlink(link)}" if link.is_symlink() else "it lies"
    advice = "which is not followed; replace the link by its target"
    return RefusedError(errno.EXDEV, f"{what}, outside of {within}, {advice}", str(path))
