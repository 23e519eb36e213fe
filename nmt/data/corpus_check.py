"""Checksums of an encoded corpus: a file is read through once, until its size, times or inode change."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nmt.data.corpus import META
from nmt.data.known_files import file_identity
from nmt.data.progress import Advance, no_progress
from nmt.errors import DataError
from nmt.files import LARGEST_RECORD, open_inside, read_inside, replace_text

VERIFIED = "verified.json"
"""In the folder of a corpus: size, times and inode of each file when it was found whole."""
_BLOCK = 1 << 20


def unverified_bytes(folder: Path) -> int:
    """Bytes that `damaged_file` would read; DataError as there."""
    return sum((file_identity(path) or (0,))[0] for path in _unverified(folder, _sums(folder)))


def damaged_file(folder: Path, *, advance: Advance = no_progress) -> Path | None:
    """A file of a corpus that has changed since the text was encoded, or None; verified files are remembered.

    Raises DataError for a corpus whose checksums cannot be read.
    """
    sums = _sums(folder)
    unverified = _unverified(folder, sums)
    # Taken before reading: a file that changes in the meantime is read again at the next start.
    identities = {path.name: file_identity(path) for path in unverified}
    damaged = _first_wrong(unverified, sums, advance)
    if damaged is None and unverified:
        with contextlib.suppress(OSError):  # a cache that may only be read is verified at each start
            replace_text(folder / VERIFIED, json.dumps({**_remembered(folder), **identities}, indent=1))
    return damaged


def any_damaged_file(folder: Path) -> Path | None:
    """The same without using or writing remembered results."""
    sums = _sums(folder)
    return _first_wrong([folder / name for name in sums], sums, no_progress)


def damage(path: Path) -> str:
    """The message about a damaged file."""
    return f"{path}: damaged: its checksum is not the one in {META}"


def _first_wrong(paths: Iterable[Path], sums: dict[str, int], advance: Advance) -> Path | None:
    return next((path for path in paths if _crc32(path, advance) != sums[path.name]), None)


def _crc32(path: Path, advance: Advance) -> int:
    found = 0
    try:
        with open_inside(path, within=path.parent) as stream:
            while block := stream.read(_BLOCK):
                found = zlib.crc32(block, found)
                advance(len(block))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return found


def _unverified(folder: Path, sums: Iterable[str]) -> list[Path]:
    known = _remembered(folder)
    return [folder / name for name in sums if known.get(name) != list(file_identity(folder / name) or ())]


def _sums(folder: Path) -> dict[str, int]:
    """Checksums by the names of files in the folder; none for a corpus of a version that wrote none."""
    try:
        meta: Any = json.loads(read_inside(folder / META, within=folder, largest=LARGEST_RECORD))
        return {Path(name).name: int(value) for name, value in meta.get("crc32", {}).items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{folder / META}: damaged ({error})") from error


def _remembered(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_inside(folder / VERIFIED, within=folder, largest=LARGEST_RECORD))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
