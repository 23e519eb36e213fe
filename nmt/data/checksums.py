"""SHA-256 sums stored with the files of a folder, to detect changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.errors import CheckpointError, printable
from nmt.files import LARGEST_RECORD, LARGEST_VOCABULARY, check_size, open_inside, read_inside, replace_text

CHECKSUMS = "checksums.json"
_KEY = "sha256"


def write_checksums(folder: Path) -> None:
    """Write FOLDER/checksums.json with the sums of all files in the folder."""
    sums = {name: _sum(path, folder) for name, path in _files(folder).items()}
    replace_text(folder / CHECKSUMS, json.dumps({_KEY: sums}, indent=1) + "\n")


def has_checksums(folder: Path) -> bool:
    """Whether FOLDER/checksums.json exists; folders of older versions have none."""
    return os.path.lexists(folder / CHECKSUMS)


def check_checksums(folder: Path) -> None:
    """Raise CheckpointError, naming the file, if anything has changed since it was written; a folder without sums
    passes.

    Files that did not exist when the sums were written are not checked.
    """
    if not has_checksums(folder):
        return
    found = _files(folder)  # a name in somebody else's checksums.json could lead anywhere
    for name, expected in _read(folder / CHECKSUMS).items():
        if name not in found:
            raise CheckpointError(f"{folder}: {printable(name)} is missing, but {CHECKSUMS} has its checksum")
        if _sum(found[name], folder) != expected:
            raise CheckpointError(
                f"{found[name]}: changed since it was saved: its SHA-256 differs from the one in {CHECKSUMS}; restore "
                f"it from a copy"
            )


def _files(folder: Path) -> dict[str, Path]:
    """The files below a folder, by their names relative to it."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {name: path for path in paths if (name := path.relative_to(folder).as_posix()) != CHECKSUMS}


def _sum(path: Path, folder: Path) -> str:
    digest = hashlib.sha256()
    try:
        with open_inside(path, within=folder) as stream:
            check_size(stream, largest=LARGEST_VOCABULARY)
            while block := stream.read(1 << 20):
                digest.update(block)
        return digest.hexdigest()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error


def _read(file: Path) -> Mapping[str, str]:
    try:
        content: Any = json.loads(read_inside(file, within=file.parent, largest=LARGEST_RECORD))
        sums = content[_KEY]
        if isinstance(sums, dict) and all(isinstance(value, str) for value in sums.values()):
            return sums
        problem = f"{_KEY} is not a mapping of names to sums"
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        problem = 'expected {"sha256": {NAME: SUM, ...}}'
    raise CheckpointError(f"{file}: not a list of checksums: {problem}")
