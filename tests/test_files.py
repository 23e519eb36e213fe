"""Files of others are read without harm, ours are written whole, and errors name them."""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from nmt import files
from nmt.errors import UnreadableError
from nmt.files import (
    MIB,
    check_directory,
    check_readable,
    copy_folder,
    is_file,
    is_folder,
    is_there,
    naming,
    new_directory,
    open_inside,
    open_model_file,
    open_regular,
    own_file,
    path_of,
    read_bounded,
    read_inside,
    read_sums,
    reason,
    replace_file,
    replace_text,
    replacing,
    sums_text,
    temporary_directory,
    write_file,
    write_new,
    writing,
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    (model / "inner").mkdir(parents=True)
    (model / "file").write_text("content")
    (model / "inner" / "file").write_text("inner content")
    (tmp_path / "secret").write_text("secret")
    return model


def read(path: Path, model: Path) -> str:
    return read_inside(path, within=model, largest=100).decode()


def test_files_and_links_inside_a_directory_are_read(model: Path, tmp_path: Path) -> None:
    (model / "link").symlink_to("inner/file")
    (model / "folder").symlink_to("inner")
    (tmp_path / "link to model").symlink_to(model)
    assert read(model / "file", model) == "content"
    assert read(model / "link", model) == read(model / "folder" / "file", model) == "inner content"
    assert read(tmp_path / "link to model" / "link", tmp_path / "link to model") == "inner content"
    assert read(model / "inner" / ".." / "file", model) == "content"


@pytest.mark.parametrize("target", ["../secret", "/dev/zero", "/etc/passwd", "../../nowhere"])
def test_a_link_out_of_the_directory_is_named_and_not_followed(model: Path, target: str) -> None:
    (model / "link").symlink_to(target)
    with pytest.raises(OSError, match="which is not followed; replace the link by its target") as caught:
        open_inside(model / "link", within=model)
    assert f"it is a link to {target}, outside of {model}" in caught.value.strerror
    (model / "other").symlink_to("link")
    with pytest.raises(OSError, match="outside of"):
        open_inside(model / "other", within=model)


def test_the_link_is_named_that_leads_out_on_the_way(model: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("secret")
    (model / "folder").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=f"{model}/folder is a link to {tmp_path}/elsewhere, outside of {model}"):
        open_inside(model / "folder" / "file", within=model)
    with pytest.raises(OSError, match="it is a link to"):
        check_directory(model / "folder", within=model)
    check_directory(model / "inner", within=model)
    check_directory(model / "not there", within=model)


def test_a_name_cannot_climb_out(model: Path) -> None:
    with pytest.raises(OSError, match="outside of"):
        open_inside(model / ".." / "secret", within=model)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _nothing(path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_pipe, "is not a regular file"),
        (_directory, "is a directory, not a file"),
        (_loop, "symbolic links"),
        (_nothing, "No such file"),
    ],
)
def test_what_is_no_regular_file_is_refused_at_once(model: Path, make: Callable[[Path], None], reason: str) -> None:
    make(model / "x")
    with pytest.raises(OSError, match=reason) as caught:
        open_inside(model / "x", within=model)
    assert caught.value.filename == str(model / "x")
    with pytest.raises(OSError, match=reason):
        open_regular(model / "x")


def test_no_more_than_the_bound_is_read(model: Path) -> None:
    with (model / "large").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(OSError, match="larger than 2 MiB, which no such file is"):
        read_inside(model / "large", within=model, largest=2 * MIB)
    assert len(read_inside(model / "file", within=model, largest=7)) == 7


def test_a_directory_that_is_exchanged_for_a_link_in_the_meantime(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (model.parent / "elsewhere").mkdir()
    (model.parent / "elsewhere" / "file").write_text("secret")
    found = os.path.realpath

    def exchanged(path: str) -> str:
        real = found(path)
        if (model / "inner").is_dir() and not (model / "inner").is_symlink() and real.endswith("file"):
            (model / "inner").rename(model / "old")
            (model / "inner").symlink_to(model.parent / "elsewhere")
        return real

    monkeypatch.setattr(os.path, "realpath", exchanged)
    with pytest.raises(OSError, match="Not a directory|symbolic links"):
        open_inside(model / "inner" / "file", within=model)


def test_the_name_of_an_open_file_is_that_file(model: Path) -> None:
    with open_inside(model / "file", within=model) as stream:
        (model / "file").unlink()
        assert Path(path_of(stream)).read_text() == "content"


def test_nothing_is_written_through_a_link(model: Path, tmp_path: Path) -> None:
    (model / "log").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="is a link, which is not followed for writing; remove it"):
        open(model / "log", "a", opener=own_file).close()
    os.mkfifo(model / "pipe")
    with pytest.raises(OSError, match="is not a regular file|No such device"):
        open(model / "pipe", "a", opener=own_file).close()
    with pytest.raises(FileExistsError):
        write_new(model / "log", b"x")
    replace_text(model / "log", "log\n")
    assert (tmp_path / "secret").read_text() == "secret"
    assert not (model / "log").is_symlink() and (model / "log").read_text() == "log\n"


def test_a_replaced_file_is_whole_or_as_it_was(model: Path) -> None:
    mask = os.umask(0o027)
    try:
        replace_text(model / "file", "first\n")
        assert stat.S_IMODE((model / "file").stat().st_mode) == 0o640
        with replacing(model / "file", mode=0o600) as stream:
            stream.write(b"second")
        assert stat.S_IMODE((model / "file").stat().st_mode) == 0o600
    finally:
        os.umask(mask)
    with pytest.raises(KeyboardInterrupt), replacing(model / "file") as stream:
        stream.write(b"third")
        raise KeyboardInterrupt
    assert (model / "file").read_text() == "second"
    assert sorted(path.name for path in model.iterdir()) == ["file", "inner"]


def test_a_new_directory_is_nobodys_and_gone_after_an_error(model: Path) -> None:
    with new_directory(model / "made") as temporary:
        assert temporary.parent == model and temporary.name.startswith(".writing-made-")
        temporary.rename(model / "made")
    with pytest.raises(RuntimeError), new_directory(model / "other") as temporary:
        (temporary / "x").touch()
        raise RuntimeError
    assert sorted(path.name for path in model.iterdir()) == ["file", "inner", "made"]


def _replaced(path: Path) -> None:
    replace_text(path, "new")


def _written(path: Path) -> None:
    with writing(path) as stream:
        stream.write(b"new")


def _made(path: Path) -> None:
    with new_directory(path, prefix=".") as folder:
        folder.rmdir()


@pytest.mark.parametrize("make", [_replaced, _written, _made])
def test_what_killed_processes_have_left_long_ago_is_deleted_and_nothing_else(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    dead, old, date = 9999999, time.time() - 25 * 60 * 60, "20251124"
    for name in (f".made-{dead}-0123abcd", f".made-{os.getpid()}-0123abcd"):  # as this process in another container
        (tmp_path / name / "inner").mkdir(parents=True)
    stay = [
        f".made-{os.getppid()}-0123abcd",
        f".made-{dead}-0123abc",
        f".made-{date}-0123abcd",
        f".made-{dead}-0123abcD",
    ]
    stay += [f".other-{dead}-0123abcd", f".made-{dead}-1-0123abcd", f"made-{dead}-0123abcd", f".made-{dead}-aaaaaaaa"]
    stay += [f".made-{dead}-bbbbbbbb", f".made-{dead}-cccccccc"]
    for name in stay:
        (tmp_path / name).touch()
    (tmp_path / f".made-{dead}-dddddddd").symlink_to(tmp_path)
    with new_directory(tmp_path / "held", prefix=".") as held:
        held = held.rename(tmp_path / f".made-{dead}-eeeeeeee")
        for path in tmp_path.rglob("*"):
            if path.name not in (f".made-{dead}-aaaaaaaa", f".made-{dead}-dddddddd"):  # younger, a link
                os.utime(path, (old, old))
        (tmp_path / f".made-{dead}-cccccccc").unlink()
        (tmp_path / f".made-{dead}-cccccccc" / "inner").mkdir(parents=True)  # written to just now
        os.utime(tmp_path / f".made-{dead}-cccccccc", (old, old))
        if os.geteuid() == 0:
            os.chown(tmp_path / f".made-{dead}-bbbbbbbb", 65534, -1)
        else:
            stay.remove(f".made-{dead}-bbbbbbbb")
        make(tmp_path / "made")
        found = {path.name for path in tmp_path.iterdir()} - {"made"}
        assert found == {*stay, held.name, f".made-{dead}-dddddddd"}


def test_temporary_directories_are_of_this_user_alone_and_gone_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_directory("nmt-test") as folder:
        assert folder.parent == tmp_path and stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "file").touch()
    assert not list(tmp_path.iterdir())


def test_a_neighbour_whose_name_begins_alike_is_outside(model: Path, tmp_path: Path) -> None:
    (tmp_path / "model2").mkdir()
    (tmp_path / "model2" / "file").write_text("secret")
    (model / "link").symlink_to("../model2/file")
    with pytest.raises(OSError, match="outside of"):
        open_inside(model / "link", within=model)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_no_descriptor_is_left_open(model: Path) -> None:
    os.mkfifo(model / "inner" / "pipe")
    before = descriptors()
    assert read(model / "inner" / "file", model) == "inner content"
    for name in ("pipe", "nothing"):
        with pytest.raises(OSError, match="regular|No such"):
            open_inside(model / "inner" / name, within=model)
    with pytest.raises(OSError, match="is a directory"):
        open_regular(model / "inner")
    assert descriptors() == before


def test_a_file_that_grows_while_it_is_read_is_read_whole_up_to_the_bound(model: Path) -> None:
    class Grown(io.BytesIO):
        """Its size was asked for when it had 7 bytes."""

        name = "grown"

        def fileno(self) -> int:
            return opened.fileno()

    content = b"content and more"
    with (model / "file").open("rb") as opened:
        assert read_bounded(Grown(content), largest=len(content)) == content
        with pytest.raises(OSError, match="larger than 15 bytes"):
            read_bounded(Grown(content), largest=len(content) - 1)


def test_a_device_is_not_written_to() -> None:
    with pytest.raises(OSError, match="is not a regular file"):
        open(os.devnull, "a", opener=own_file).close()


def test_files_of_a_model_and_of_its_checkpoints_may_be_links_within_it(model: Path) -> None:
    (model / "checkpoints" / "step-1").mkdir(parents=True)
    for link in (model / "checkpoints" / "step-1" / "config", model / "checkpoints" / "best"):
        link.symlink_to(model / "file")
        with open_model_file(link) as stream:
            assert stream.read() == b"content"


def test_a_name_may_be_as_long_as_the_file_system_allows(model: Path) -> None:
    path = model / ("n" * 255)
    replace_text(path, "long\n")
    assert path.read_text() == "long\n"


def test_a_folder_is_copied_with_all_folders_in_it(model: Path) -> None:
    (model / "inner" / "deeper").mkdir()
    (model / "inner" / "deeper" / "file").write_text("deep")
    copy_folder(model / "inner", model / "copy", within=model, largest=100)
    copied = {path.relative_to(model / "copy"): path.read_text() for path in (model / "copy").rglob("file")}
    assert copied == {Path("file"): "inner content", Path("deeper/file"): "deep"}


def test_content_is_on_the_disk_before_the_file_has_its_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, int]] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: synced.append(((model / "file").read_text(), os.fstat(number).st_size))
    )
    replace_text(model / "file", "replaced")
    assert synced == [("content", len("replaced"))] and (model / "file").read_text() == "replaced"


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
        monkeypatch.setattr(files, "open_model_file", lambda path: damaged)
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


DIGEST = "0123456789abcdef" * 4


def test_names_are_read_as_they_were_written() -> None:
    sums = {"model.safetensors": DIGEST, "a name  with spaces": DIGEST[::-1]}
    assert read_sums(sums_text(sums)) == sums


@pytest.mark.parametrize("content", [b"", b"\n", f"{DIGEST[:-1]}  file\n".encode(), f"{DIGEST} file\n".encode()])
def test_what_is_no_list_is_none(content: bytes) -> None:
    assert read_sums(content) is None
