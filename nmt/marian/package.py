"""The files of a model of others: a folder, a zip, or single files. Names in a zip are labels, never paths to write."""

from __future__ import annotations

import gzip
import io
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nmt.errors import CheckpointError, missing, printable, shown
from nmt.files import open_inside, open_regular, read_bounded, reason

LARGEST = 2 << 30
"""Bytes of a file, unpacked: twice the largest published models of this kind."""
LARGEST_RATIO = 100
"""Bytes that one byte of a packed file may stand for: weights hardly get smaller by packing."""
SMALL = 64 << 20
"""Bytes to which any packed file may unpack; the most of a vocabulary or of settings."""
_MOST_FILES = 10_000
BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    IndexError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)
"""What zipfile raises for files that are damaged, or packed in a way that it does not know."""
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"


@dataclass(frozen=True)
class Package:
    """Files by their names, which are read when they are needed."""

    path: Path
    """The folder or zip"""
    files: Mapping[str, Callable[[int], bytes]]
    """What reads each, of at most so many bytes"""

    def place(self, name: str) -> Path:
        """A file as messages name it."""
        return self.path / name

    def read(self, name: str, *, largest: int = SMALL) -> bytes:
        """A file, unpacked if it is gzip's. Raises CheckpointError, which names it."""
        read = self.files.get(name)
        if read is None:
            raise CheckpointError(missing(self.place(name)))
        return unpacked(self.place(name), lambda: read(largest), largest=largest)

    def text(self, name: str) -> str:
        """A file of text in UTF-8."""
        try:
            return self.read(name).decode("utf-8")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self.place(name)}: no text in UTF-8 ({error.reason})") from error

    def only(self, pattern: str, what: str) -> str | None:
        """The one file whose whole name matches a regular expression; None if there is none.

        Raises CheckpointError, which lists them, if there are several.
        """
        found = sorted(name for name in self.files if re.fullmatch(pattern, name))
        if len(found) > 1:
            names = ", ".join(map(printable, found[:3]))
            raise CheckpointError(f"{self.path}: has {len(found)} files that could be its {what}: {names}; name one")
        return found[0] if found else None


def unpacked(path: Path, read: Callable[[], bytes], *, largest: int) -> bytes:
    """What `read` returns, unpacked if it is gzip's, of `largest` bytes at most. Raises CheckpointError."""
    try:
        content = read()
        if content[:2] != _GZIP:
            return content
        most = min(largest, max(SMALL, LARGEST_RATIO * len(content)))
        plain = gzip.GzipFile(fileobj=io.BytesIO(content)).read(most + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(missing(path)) from error
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(f"{path}: {reason(error)}") from error
    if len(plain) > most:
        raise CheckpointError(f"{path}: unpacks to more than {most >> 20:,} MiB, the most that is read of such a file")
    return plain


def read_file(path: Path, *, largest: int = LARGEST) -> bytes:
    """A file that the user has named, unpacked if it is gzip's. Raises CheckpointError."""

    def read() -> bytes:
        with open_regular(path) as stream:
            return read_bounded(stream, largest=largest)

    return unpacked(path, read, largest=largest)


def is_zip(path: Path) -> bool:
    """Whether a file begins as a zip does; not for what is no file."""
    try:
        with open_regular(path) as stream:
            return stream.read(len(_ZIP)) == _ZIP
    except OSError:
        return False


def open_package(path: Path) -> Package:
    """The files of a folder, or of a zip. Raises CheckpointError."""
    if path.is_dir():
        return _folder(path)
    if is_zip(path):
        return _zip(path)
    raise CheckpointError(missing(path) if not path.exists() else f"{path}: neither a folder nor a zip file")


def _folder(path: Path) -> Package:
    def reader(name: str) -> Callable[[int], bytes]:
        def read(largest: int) -> bytes:
            with open_inside(path / name, within=path) as stream:
                return read_bounded(stream, largest=largest)

        return read

    try:
        names = [entry.name for entry in os.scandir(path) if entry.is_file()]
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    return Package(path, {name: reader(name) for name in names})


def _zip(path: Path) -> Package:
    """The members of a zip by their last name; a folder around all of them, as some zips have, does not matter."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
    except BROKEN_ZIP as error:
        raise CheckpointError(f"{path}: not a readable zip file ({error})") from error
    if len(members) > _MOST_FILES:
        raise CheckpointError(f"{path}: has {len(members):,} files, and no model has so many")

    def reader(member: zipfile.ZipInfo) -> Callable[[int], bytes]:
        def read(largest: int) -> bytes:
            most = min(largest, max(SMALL, LARGEST_RATIO * member.compress_size))
            if member.file_size > most:
                raise OSError(f"unpacks to {member.file_size:,} bytes, more than the {most:,} that are read")
            try:
                with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
                    return archive.read(member)
            except BROKEN_ZIP as error:
                raise OSError(str(error)) from error

        return read

    files: dict[str, Callable[[int], bytes]] = {}
    for member in members:
        folder, _, name = member.filename.replace("\\", "/").rpartition("/")
        if ".." in folder.split("/") or member.filename.startswith(("/", "\\")):
            raise CheckpointError(f"{path}: its member {shown(member.filename)} leads out of the folder")
        if name in files:
            raise CheckpointError(f"{path}: has two files named {shown(name)}")
        files[name] = reader(member)
    return Package(path, files)
