"""Text files of a run, such as translations, written atomically."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nmt.errors import DataError
from nmt.files.errors import reason
from nmt.files.whole import replace_file


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write one line for each of `lines` to `path`, which has them all or is as it was before.

    Its directory is made if it is not there. Raises DataError naming the file where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({reason(error)})") from error
