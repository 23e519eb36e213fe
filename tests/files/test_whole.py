"""Whole files: what is there, what cannot be told now, and errors that name the file."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from nmt.errors import UnreadableError
from nmt.files import whole
from nmt.files.errors import naming, reason
from nmt.files.whole import check_readable, is_file, is_folder, is_there, replace_file, write_file


def test_what_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    names = ["file", ".", "nothing", "file/below"]
    assert [is_file(tmp_path / name) for name in names] == [True, False, False, False]
    assert [is_folder(tmp_path / name) for name in names] == [False, True, False, False]
    assert [is_there(tmp_path / name) for name in names] == [True, True, False, False]


def test_what_a_file_server_does_not_tell_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stalled(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "stat", stalled)
    for ask in (is_file, is_folder, is_there):
        with pytest.raises(UnreadableError, match="file: cannot be read now: Stale file handle"):
            ask(tmp_path / "file")


def test_a_file_is_read_to_its_end_to_find_out_whether_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Damaged(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            block = super().read(size)
            if not block:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return block

        def fileno(self) -> int:
            return opened.fileno()

    (tmp_path / "file").touch()
    check_readable(tmp_path / "file")
    with (tmp_path / "file").open("rb") as opened:
        damaged: BinaryIO = Damaged(b"x" * (3 << 20))
        monkeypatch.setattr(whole, "open_model_file", lambda path: damaged)
        with pytest.raises(UnreadableError, match="file: cannot be read now: Input/output error"):
            check_readable(tmp_path / "file")


def test_a_written_file_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda number: sizes.append(os.fstat(number).st_size))
    write_file(tmp_path / "file", b"content")
    assert sizes == [7] and (tmp_path / "file").read_bytes() == b"content"


@pytest.mark.parametrize("write", [write_file, replace_file])
def test_an_error_of_writing_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "file").write_text("before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write(tmp_path / "file", b"after")
    assert caught.value.filename == str(tmp_path / "file") and reason(caught.value) == "the disk is full"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
    assert write is write_file or (tmp_path / "file").read_text() == "before"


@pytest.mark.parametrize(("name", "told"), [(None, "model"), ("a/.writing-model-7/file", "model"), ("other", "other")])
def test_an_error_gets_the_name_of_what_is_written_unless_it_is_about_another_file(name: str | None, told: str) -> None:
    with pytest.raises(PermissionError) as caught, naming("model", unfinished=".writing-"):
        raise PermissionError(errno.EACCES, "Permission denied", name)
    assert caught.value.filename == told


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")]
)
def test_exhausted_memory_is_named_whoever_reports_it(error: Exception) -> None:
    assert reason(error) == "out of memory"
