"""What cannot be read or written at a moment is not damaged: one line, nothing touched, and the run goes on later."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.cli import translate
from nmt.data import corpus as encoded
from nmt.data.prepare import _read_record as read_record
from nmt.errors import CheckpointError, UnreadableError
from nmt.optimization import average
from nmt.run_check import command as check
from nmt.training.run_dir import CheckpointStore
from nmt.training.state import Ranking
from tests.tiny_training import nmt_train, write_config, write_corpus

NO_MEMORY = "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"
ERRORS = [OSError(number, os.strerror(number)) for number in (errno.EACCES, errno.ESTALE, errno.EIO, errno.EMFILE)]
Train = Callable[..., int]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    write_corpus(folder)
    assert nmt_train(write_config(folder)) == 0
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of a run with checkpoints 6 and 12."""
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def go_on(trained: Path, run: Path) -> Train:
    """nmt-train for one more update."""
    return lambda *more: nmt_train(
        trained / "tiny.yaml", "--set", f"run_dir={run}", "--set", "training.max_steps=13", *more
    )


def contents(run: Path) -> dict[Path, bytes | None]:
    """Everything in a run but what tells people of the attempt."""
    others = [path for path in run.rglob("*") if path.name not in ("lock", "train.log")]
    return {path: path.read_bytes() if path.is_file() else None for path in others}


@contextmanager
def failing(patch: pytest.MonkeyPatch, name: str, error: BaseException) -> Iterator[None]:
    """Opening a file of that name in step-12 fails."""
    original = builtins.open

    def opened(file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file).endswith(f"step-12/{name}"):
            raise error
        return original(file, *arguments, **options)

    with patch.context() as inner:
        inner.setattr(builtins, "open", opened)
        yield


@pytest.mark.parametrize("error", [*ERRORS, MemoryError()], ids=lambda error: str(error) or "memory")
@pytest.mark.parametrize("name", ["training.pt", "model.safetensors"])
def test_a_checkpoint_that_cannot_be_read_now_stays(
    run: Path,
    go_on: Train,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    error: Exception,
) -> None:
    before, why = contents(run), error.strerror if isinstance(error, OSError) else "out of memory"
    with failing(monkeypatch, name, error):
        assert go_on() == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"checkpoints/step-12/{name}: cannot be read now: {why}; nothing has been changed" in line
        assert contents(run) == before
        assert check.main([str(run)]) == 1
    said = capsys.readouterr().out
    assert f"step-12/{name}: cannot be read now: {why}" in said
    assert (
        "resume: not possible while step 12 cannot be read" in said and "damaged" not in said and "delete" not in said
    )


def test_the_run_goes_on_from_it_later(
    run: Path, go_on: Train, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(*arguments: Any, **options: Any) -> None:
        raise RuntimeError(NO_MEMORY)

    before = contents(run)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", load)
        assert go_on() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "training.pt: cannot be read now: out of memory" in line
    assert contents(run) == before
    assert go_on() == 0
    assert "step-12 at epoch" in capsys.readouterr().err


def test_a_missing_training_state_is_not_passed_over(
    run: Path, go_on: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "checkpoints/step-12/training.pt").unlink()
    before = contents(run)
    assert go_on() == 1
    assert "step-12: has no training.pt; nothing has been changed" in capsys.readouterr().err
    assert contents(run) == before


def test_a_damaged_training_state_is_noticed_by_its_checksum(
    run: Path, go_on: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bit of a moment of the optimizer, which no parser would notice."""
    state = run / "checkpoints/step-12/training.pt"
    content = bytearray(state.read_bytes())
    content[content.index(b"data/0") + 700] ^= 1
    state.write_bytes(content)
    assert go_on() == 0
    assert "step-12: damaged checkpoint: training.pt differs from what was saved; set aside" in capsys.readouterr().err


def test_a_checkpoint_without_checksums_is_read(run: Path, go_on: Train, capsys: pytest.CaptureFixture[str]) -> None:
    """As older versions have written it."""
    (run / "checkpoints/step-12/SHA256SUMS").unlink()
    assert go_on() == 0
    assert "step-12 at epoch" in capsys.readouterr().err


def test_checksums_are_as_other_programs_read_them(run: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "SHA256SUMS"], cwd=run / "checkpoints/step-12", capture_output=True, check=True
    )
    assert done.stdout.splitlines() == [b"model.safetensors: OK", b"training.pt: OK"]


def test_nothing_starts_over_what_was_set_aside(run: Path, go_on: Train, capsys: pytest.CaptureFixture[str]) -> None:
    """Which older versions did with good checkpoints that could not be read for a moment."""
    folder = run / "checkpoints"
    for step in (6, 12):
        (folder / f"step-{step}").rename(folder / f"damaged-step-{step}")
    (folder / "damaged-step-6/model.safetensors").write_bytes(b"rubbish")
    before = contents(run)
    assert go_on() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "every checkpoint is damaged or set aside as damaged" in line and "--overwrite starts a new run" in line
    assert contents(run) == before, "neither the log nor a checkpoint is touched"
    assert check.main([str(run)]) == 1
    said = capsys.readouterr().out
    assert "damaged-step-12: was set aside as damaged, but is whole; rename it to step-12 to use it again" in said
    assert "damaged-step-6: is damaged" in said and "can be deleted" not in said
    (folder / "damaged-step-12").rename(folder / "step-12")
    assert go_on() == 0
    assert check.main([str(run)]) == 0
    assert "damaged-step-6: is damaged and can be deleted" in capsys.readouterr().out
    shutil.rmtree(folder / "step-12")
    shutil.rmtree(folder / "step-13")
    assert go_on("--overwrite") == 0


def test_translation_and_averaging_say_so(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stalled = OSError(errno.EIO, os.strerror(errno.EIO))
    said = "step-12/model.safetensors: cannot be read now: Input/output error"
    with failing(monkeypatch, "model.safetensors", stalled):
        assert translate.main([str(run), "--checkpoint", "12", "-i", os.devnull]) == 1
        assert said in capsys.readouterr().err
        assert average.main([str(run), "--last", "2", "-o", str(tmp_path / "average")]) == 1
        assert said in capsys.readouterr().err


def test_written_files_take_the_rights_of_the_umask(trained: Path, tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        run = tmp_path / "run"
        more = ("training.max_steps=2", "training.validate_every=2", "training.average_last=1")
        assert nmt_train(trained / "tiny.yaml", "--set", f"run_dir={run}", *(f"--set={key}" for key in more)) == 0
        assert average.main([str(run), "--last", "1", "-o", str(tmp_path / "average")]) == 0
        (tmp_path / "in").write_text("ba\n")
        assert translate.main([str(run), "-i", str(tmp_path / "in"), "-o", str(run / "out")]) == 0
    finally:
        os.umask(before)
    found = {path: path.stat().st_mode & 0o777 for path in [*run.rglob("*"), *(tmp_path / "average").rglob("*")]}
    wrong = {path: oct(mode) for path, mode in found.items() if mode != (0o775 if path.is_dir() else 0o664)}
    assert len(found) > 20 and not wrong


@pytest.mark.parametrize("name", ["model.safetensors", "training.pt", "SHA256SUMS", "config.yaml"])
@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the disk quota is used up")]
)
def test_a_full_disk_is_said_with_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int, words: str
) -> None:
    """/dev/full in the place of a file of the checkpoint, which is much longer than any buffer."""
    original = Path.open

    def opened(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if path.name != name or number == errno.EDQUOT:
            return original(path, mode, *arguments, **options)
        return open("/dev/full", mode)

    def synced(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(f"/{name}"):
            raise OSError(number, os.strerror(number))

    store = CheckpointStore(tmp_path, keep_last=2, keep_best=0, config_text="x" * 100_000)
    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(os, "fsync", synced if number == errno.EDQUOT else lambda descriptor: None)
    weights = {"w": torch.zeros(50_000)}
    wanted = f"checkpoints/step-1/{name}: cannot be written: {words}; there is no earlier one"
    with pytest.raises(CheckpointError, match=wanted):
        store.save(1, weights=weights, state=weights, ranking=Ranking(metric="loss", higher_is_better=False))
    assert not list((tmp_path / "checkpoints").iterdir())


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        store = CheckpointStore(disk, keep_last=2, keep_best=0, config_text="seed: 1\n")
        ranking = Ranking(metric="loss", higher_is_better=False)
        for step, name, size in ((1, "model.safetensors", 90_000), (2, "training.pt", 45_000)):
            weights = {"w": torch.zeros(size)}
            wanted = f"checkpoints/step-{step}/{name}: cannot be written: the disk is full"
            with pytest.raises(CheckpointError, match=wanted):
                store.save(step, weights=weights, state=weights, ranking=ranking)
        assert not list((disk / "checkpoints").iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_encoded_text_and_a_tokenizer_that_cannot_be_read_now_stay(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stalled(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    options: dict[str, Any] = {"sizes": (9, 9), "key": "k"}
    with encoded.CorpusWriter(tmp_path, **options) as corpus:
        corpus.mark(corpus.position, corpus.report)
    before = contents(tmp_path)
    monkeypatch.setattr(encoded, "read_inside", stalled)
    with pytest.raises(UnreadableError, match=r"done\.json: cannot be read now: Input/output error; nothing has been"):
        encoded.CorpusWriter(tmp_path, **options)
    monkeypatch.setattr(Path, "read_text", stalled)
    with pytest.raises(UnreadableError, match=r"tokenizer\.json: cannot be read now: Input/output error"):
        read_record(run / "tokenizer")
    monkeypatch.undo()
    assert contents(tmp_path) == before
