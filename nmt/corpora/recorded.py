"""Checksums of texts made by nmt-data, by which a later call recognises them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nmt.corpora.fetch import digest
from nmt.errors import DataError
from nmt.files import read_sums, sums_text

LANGUAGES = ("en", "de")
SUMS = "SHA256SUMS"


def is_complete(to: Path, part: str) -> bool:
    """Whether both sides match the recorded sums; DataError for files that an earlier run did not make."""
    recorded = _read(to)
    present = [path for path in (to / f"{part}.{language}" for language in LANGUAGES) if path.exists()]
    for path in present:
        if digest(path) != recorded.get(path.name):
            raise DataError(f"{path}: its checksum differs from {to / SUMS}; move it away and run the command again")
    return len(present) == len(LANGUAGES)


def settle(to: Path, temporary: Sequence[Path]) -> None:
    """Record the sums of files PART.LANGUAGE.part, and take the `.part` off their names."""
    # Recorded before the files get their names: a file with its name always has its sum.
    sums = _read(to) | {path.stem: digest(path) for path in temporary}
    (to / SUMS).write_bytes(sums_text(dict(sorted(sums.items()))))
    for path in temporary:
        path.replace(path.with_suffix(""))


def _read(to: Path) -> dict[str, str]:
    """File names and the sums recorded for them; DataError where the file has something else in it."""
    path = to / SUMS
    if not path.is_file():
        return {}
    found = read_sums(path.read_bytes())
    if found is None:
        raise DataError(f"{path}: is not a list of checksums that nmt-data wrote; move it away")
    return found
