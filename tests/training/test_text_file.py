"""Text files of a run: there whole, or as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.errors import DataError
from nmt.training.run_dir import write_lines
from tests.training.test_checkpoint import largest_file


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines.txt"
    write_lines(path, ["one", "two"])
    with largest_file(1000), pytest.raises(DataError, match="lines.txt: cannot be written"):
        write_lines(path, ["a longer line"] * 1000)
    assert path.read_text(encoding="utf-8") == "one\ntwo\n"
    assert [file.name for file in path.parent.iterdir()] == ["lines.txt"]
