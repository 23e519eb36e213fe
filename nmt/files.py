"""Files and directories: read without trust, written at once or not at all, and errors about them.

A model directory may come from anywhere: reading a pipe in it would block, and a link could lead to a device or to
unrelated files. So only regular files of bounded size inside their folder are read. What is written appears under its
name only when it is complete. Until then it has an unpredictable name and is created exclusively by this process:
whatever was put in a directory beforehand, nothing is written or deleted through a link.

Errors are OSError with number, file name and a text in `strerror` that follows the name, unless another one is named.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from nmt.errors import ConfigError, UnreadableError
from nmt.light.output import Written, hold, remove, temporary_name

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


def file_identity(path: Path) -> tuple[int, int, int, int] | None:
    """Size, time of change of content and of the file itself, inode; None if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


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


def remembered(file: Path) -> dict[str, Any]:
    """The JSON object in a file of ours that only saves work; an empty one where the file is missing or damaged."""
    try:
        found = json.loads(read_inside(file, within=file.parent, largest=LARGEST_RECORD))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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


_BLOCK = 1 << 20
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


def read_file(path: Path, *, largest: int | None = None) -> bytes:
    """All bytes of a file of a run or model, which has no more than `largest`, or than there is memory.

    Raises:
        UnreadableError: they cannot be read, for whatever reason: it is missing, a lack of rights, a file server that
            does not answer, too little memory; or it is no regular file of that directory, see `nmt.files`.
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


def digest_of(stream: BinaryIO) -> str:
    """SHA-256 of the rest of a stream, in hexadecimal."""
    import hashlib  # late, as few need it

    digest = hashlib.sha256()
    while block := stream.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


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


def _mode(path: Path) -> int:
    try:
        return os.stat(path).st_mode
    except OSError as error:
        if error.errno in _ABSENT:
            return 0
        raise unreadable(path, error) from error


_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def check_not_packed(path: Path | str) -> None:
    """Raise ConfigError for text that is to be written to a name with .gz, which would be read as a packed file."""
    if Path(path).suffix == ".gz":
        raise ConfigError(f"{path}: output is not packed; leave out .gz")


@contextlib.contextmanager
def replacing(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """A stream to a new file that takes the name `path` when the block ends without an error.

    An existing file is replaced (a link by the file itself), and stays after an error. The content is on disk
    before it gets the name. `mode` are permissions, which the umask decides by itself. Raises OSError.
    """
    temporary = unused_name(path)
    try:
        with create(temporary) as stream:
            hold(stream.fileno())
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A stream to an output that the user named, as `nmt.light.output.Written` writes it. Raises OSError."""
    written = Written(str(path))
    try:
        yield written.stream
        written.finish()
    except BaseException:
        with contextlib.suppress(OSError):  # for it writes what it still holds
            written.discard()
        raise


def replace_text(path: Path, text: str) -> None:
    """Write `text`, in UTF-8 and with its line ends as they are, to `path` at once or not at all. Raises OSError."""
    with replacing(path) as stream:
        stream.write(text.encode("utf-8"))


def create(path: Path) -> BinaryIO:
    """A stream to a new file, which must not exist, not even as a link. Raises OSError."""
    return open(os.open(path, _CREATE, 0o666), "wb")


def write_new(path: Path, content: bytes) -> None:
    """Write a new file; raises as `create`."""
    with create(path) as stream:
        stream.write(content)


def copy_folder(folder: Path, target: Path, *, within: Path, largest: int) -> None:
    """Copy the files below `folder` into the new directory `target`, regular ones that lie in `within`.

    No file has more than `largest` bytes. The copies have the rights that the umask leaves them. Raises OSError.
    """
    check_directory(folder, within=within)
    target.mkdir()
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            copy_folder(path, target / path.name, within=within, largest=largest)
        else:
            write_new(target / path.name, read_inside(path, within=within, largest=largest))


@contextlib.contextmanager
def new_directory(beside: Path, *, prefix: str = ".writing-", mode: int = 0o777) -> Iterator[Path]:
    """A new, empty directory in the same parent as `beside`; after an error it is deleted.

    The block may rename it. Raises OSError.
    """
    temporary = unused_name(beside, prefix=prefix)
    temporary.mkdir(mode)
    descriptor = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
    try:
        hold(descriptor)
        yield temporary
    except BaseException:
        remove(str(temporary))
        raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def temporary_directory(name: str) -> Iterator[Path]:
    """A directory NAME-... of this user for temporary files, deleted when the block ends. Raises OSError."""
    import tempfile  # late, as few need it

    with new_directory(Path(tempfile.gettempdir(), name), prefix="", mode=0o700) as directory:
        yield directory
        remove(str(directory))


def unused_name(path: Path, *, prefix: str = ".") -> Path:
    """`nmt.light.output.temporary_name`, of a path."""
    return Path(temporary_name(str(path), prefix=prefix))


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


_DIGITS = 64


def sums_text(sums: Mapping[str, str]) -> bytes:
    """The content of such a file, from the digests by names of files."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()


def read_sums(content: bytes) -> dict[str, str] | None:
    """The digests by names of files; None where the content is no such list."""
    rows = [line.split("  ", 1) for line in content.decode("utf-8", "replace").splitlines()]
    if not rows or any(len(row) != 2 or len(row[0]) != _DIGITS for row in rows):
        return None
    return {name: digest for digest, name in rows}
