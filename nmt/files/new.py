"""Writing files and directories that appear under their names only when they are complete.

Until then they have an unpredictable name and are created exclusively by this process: whatever was put in a directory
beforehand, nothing is written or deleted through a link.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nmt.errors import ConfigError
from nmt.files.safe import check_directory, read_inside
from nmt.light.output import Written, hold, temporary_name

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
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def temporary_directory(name: str) -> Iterator[Path]:
    """A directory NAME-... of this user for temporary files, deleted when the block ends. Raises OSError."""
    with new_directory(Path(tempfile.gettempdir(), name), prefix="", mode=0o700) as directory:
        yield directory
        shutil.rmtree(directory, ignore_errors=True)


def unused_name(path: Path, *, prefix: str = ".") -> Path:
    """`nmt.light.output.temporary_name`, of a path."""
    return Path(temporary_name(str(path), prefix=prefix))
