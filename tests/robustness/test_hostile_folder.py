"""Model directories with pipes, devices and links for files: one line at once, nothing read or written outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nmt.cli import convert, train, translate
from nmt.errors import CheckpointError, NmtError
from nmt.evaluating import command as evaluate
from nmt.interop import run_layout
from nmt.optimization import average
from nmt.run_check import command as check
from nmt.run_check.check_run import check_run
from nmt.scoring import command as score
from nmt.shortlisting import command as shortlist
from nmt.training.logs import EVENTS, TEXT, RunLog
from nmt.training.run_dir import FOLDERS, LOCK, CheckpointStore, locked, read_checkpoint
from nmt.training.state import Ranking
from nmt.zero.checkpoint import read_checkpoint as read_zero
from tests.tiny_run import make_run

WEIGHTS = f"checkpoints/step-10/{run_layout.WEIGHTS}"


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """A command that waits for a pipe, or fills the memory, ends."""

    def stop(*_: object) -> None:
        raise TimeoutError("more than 60 seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("hostile") / "run", steps=(10, 20), best=(10, 20))


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    (tmp_path / "text").write_text("a b\n")
    return tmp_path / "run"


def said(command: Callable[[list[str]], int], *arguments: object, capfd: pytest.CaptureFixture[str]) -> str:
    """The one line with which a command refuses."""
    capfd.readouterr()
    assert command([str(argument) for argument in arguments]) in (1, 2)
    err = capfd.readouterr().err
    assert err.count("\n") == 1 and len(err) < 1000 and "internal error" not in err, err
    return err


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link(path: Path) -> None:
    elsewhere = path.parent.parent.parent.parent / f"elsewhere-{path.name}"
    path.with_name("moved").rename(elsewhere)
    path.symlink_to(elsewhere)


def _sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 42)  # 4 TiB, which need no space on the disk


FILES = [WEIGHTS, "checkpoints/step-10/config.yaml", "checkpoints/best.json", "tokenizer/source.vocab"]


@pytest.mark.parametrize("make", [_pipe, _endless, _link, _sparse])
@pytest.mark.parametrize("name", FILES)
def test_no_file_of_a_model_is_anything_but_a_file_in_it(
    run: Path, capfd: pytest.CaptureFixture[str], name: str, make: Callable[[Path], None]
) -> None:
    path = run / name
    path.rename(path.with_name("moved"))
    make(path)
    line = said(translate.main, run, "-i", run.parent / "text", "--device", "cpu", capfd=capfd)
    assert str(path) in line


@pytest.mark.parametrize("name", ["tokenizer", "checkpoints", "checkpoints/step-10"])
@pytest.mark.parametrize("command", [translate, check, average, train])
def test_no_directory_of_a_run_is_elsewhere(
    run: Path, capfd: pytest.CaptureFixture[str], name: str, command: object
) -> None:
    elsewhere = run.parent / "elsewhere"
    if command is train:
        name = name.replace("10", "20")  # the newest, which it reads
        (run / "checkpoints/step-20/training.pt").touch()
    (run / name).rename(elsewhere)
    (run / name).symlink_to(elsewhere)
    text = run.parent / "text"
    before = sorted(elsewhere.rglob("*"))
    if command is translate:
        line = said(translate.main, run, "-i", text, "--device", "cpu", capfd=capfd)
    elif command is average:
        line = said(average.main, run, "--last", 2, "-o", run.parent / "mean", capfd=capfd)
        assert not (run.parent / "mean").exists()
    elif command is train:
        (elsewhere / ".writing-step-30-1").mkdir()
        arguments = ["--config", run / "in.yaml", "--set", "training.max_steps=1", "--set", f"run_dir={run}"]
        line = said(train.main, *arguments, "--device", "cpu", capfd=capfd)
        (elsewhere / ".writing-step-30-1").rmdir()
    else:
        capfd.readouterr()
        assert check.main([str(run)]) == 1
        line = "".join(capfd.readouterr())
    assert f"is a link to {elsewhere}, outside of" in line and "replace the link by its target" in line
    assert sorted(elsewhere.rglob("*")) == before


def test_links_to_a_run_and_inside_it_are_followed(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (run.parent / "link").symlink_to(run)
    (run / "checkpoints/latest").symlink_to("step-20")
    (run / "tokenizer/target.vocab").rename(run / "tokenizer/really")
    (run / "tokenizer/target.vocab").symlink_to("really")
    (run / "checkpoints/step-10/config.yaml").unlink()
    (run / "checkpoints/step-10/config.yaml").symlink_to("../../config.yaml")
    text = str(run.parent / "text")
    for model in (run.parent / "link", run / "checkpoints/latest", run.parent / "link/checkpoints/step-10"):
        assert translate.main([str(model), "-i", text, "--device", "cpu"]) == 0
    assert average.main([str(run.parent / "link"), "--last", "2", "-o", str(run.parent / "mean")]) == 0
    copied = run.parent / "mean/tokenizer/target.vocab"
    assert not copied.is_symlink() and copied.read_bytes() == (run / "tokenizer/really").read_bytes()


@pytest.mark.parametrize("name", ["tokenizer/notes", "tokenizer/source.vocab", "checkpoints/step-20/config.yaml"])
@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_an_average_has_copies_of_files_of_the_run_alone(
    run: Path, capfd: pytest.CaptureFixture[str], name: str, kind: str
) -> None:
    (run.parent / "secrets").mkdir()
    (run.parent / "secrets" / "key").write_text("secret")
    path = run / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(run.parent / "secrets" / ("key" if kind == "link" else ""))
    line = said(average.main, run, "--last", 2, "-o", run.parent / "mean", capfd=capfd)
    assert str(path) in line
    assert not (run.parent / "mean").exists() and not list(run.parent.glob(".writing-*"))


def test_weights_are_read_when_they_are_those_that_are_wanted(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file of 4 TiB, all of which its header explains."""
    path = run / WEIGHTS
    entry = {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}
    header = json.dumps({"readout.weight": entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    os.truncate(path, 8 + len(header) + (1 << 42))
    arguments = (run, "-i", run.parent / "text", "--device", "cpu")
    assert "but fewer in the weights" in said(translate.main, *arguments, capfd=capfd)
    assert "larger than" in said(average.main, run, "--best", 2, "-o", run.parent / "mean", capfd=capfd)
    assert any("step-10" in problem for problem in check_run(run).problems)


@pytest.fixture
def trained(run: Path) -> Path:
    """A run with a training state."""
    store = CheckpointStore(run, keep_last=5, keep_best=0, config_text=(run / "config.yaml").read_text())
    ranking = Ranking(metric="loss", higher_is_better=False)
    return store.save(30, weights=load_file(run / WEIGHTS), state={"x": torch.zeros(1 << 16)}, ranking=ranking)


@pytest.mark.parametrize("make", [_pipe, _endless, _link, _sparse])
@pytest.mark.parametrize("name", ["training.pt", "model.safetensors", "SHA256SUMS"])
def test_no_file_of_a_checkpoint_is_anything_but_a_file(trained: Path, name: str, make: Callable[[Path], None]) -> None:
    read_checkpoint(trained)
    (trained / name).rename(trained / "moved")
    make(trained / name)
    run = trained.parent.parent
    with pytest.raises(CheckpointError, match=name):
        read_checkpoint(trained)
    with pytest.raises(CheckpointError, match=name):  # not renamed as damaged: it is not known
        CheckpointStore(run, keep_last=1, keep_best=0, config_text="").load_newest(warn=lambda text: None)
    assert all("\n" not in problem for problem in check_run(run).problems)


def test_a_packed_training_state_is_not_unpacked(trained: Path) -> None:
    content = zipfile.ZipFile(trained / "training.pt")
    with zipfile.ZipFile(trained / "packed", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in content.namelist():
            packed.writestr(name, content.read(name))
    content.close()
    (trained / "packed").replace(trained / "training.pt")
    (trained / "SHA256SUMS").unlink()
    with pytest.raises(CheckpointError, match="training.pt: it is compressed, unlike a training state"):
        read_checkpoint(trained)


@pytest.mark.parametrize("name", [EVENTS, TEXT, LOCK])
def test_a_log_or_lock_is_not_written_through_a_link(run: Path, name: str) -> None:
    (run.parent / "precious").write_text("precious\n")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(run.parent / "precious")
    log = RunLog(run)

    def write() -> None:
        with locked(run):
            log.say("hello")
            log.record("event", {"step": 1})

    with pytest.raises(NmtError, match=f"{name}.*is a link, which is not followed for writing"):
        write()
    assert (run.parent / "precious").read_text() == "precious\n"


@pytest.mark.parametrize("name", FOLDERS)
def test_no_directory_that_training_writes_to_is_elsewhere(run: Path, name: str) -> None:
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(run.parent)
    with pytest.raises(CheckpointError, match=f"{run / name}: it is a link to"), locked(run):
        pytest.fail("the lock was given")


def test_a_planted_temporary_directory_is_neither_used_nor_deleted(run: Path) -> None:
    (run.parent / "precious").mkdir()
    (run.parent / "precious" / "file").touch()
    for place in (run.parent / f".writing-mean-{os.getpid()}", run / "checkpoints" / f".writing-step-30-{os.getpid()}"):
        place.symlink_to(run.parent / "precious")
    (run / "checkpoints" / f".best.json.{os.getpid()}").symlink_to(run.parent / "precious" / "file")
    assert average.main([str(run), "--last", "2", "-o", str(run.parent / "mean")]) == 0
    run_layout.write_best(run, run_layout.Best("loss", ()))
    store = CheckpointStore(run, keep_last=5, keep_best=0, config_text="")
    store.save(30, weights={"w": torch.zeros(1)}, state={}, ranking=Ranking(metric="loss", higher_is_better=False))
    assert [path.stat().st_size for path in (run.parent / "precious").iterdir()] == [0]


def test_a_log_without_line_ends_is_read_with_bounded_memory(run: Path) -> None:
    (run / EVENTS).write_bytes(b"{")
    os.truncate(run / EVENTS, 1 << 42)
    assert any("larger than 1,024 MiB" in problem for problem in check_run(run).problems)


def test_the_other_commands_refuse_as_well(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (run / "tokenizer/source.vocab").unlink()
    (run / "tokenizer/source.vocab").symlink_to("/dev/zero")
    text = run.parent / "text"
    for command, arguments in (
        (score.main, [run, "--source", text, "--target", text]),
        (evaluate.main, [run, "--source", text, "--ref", text]),
        (shortlist.main, [run, "-o", run.parent / "list", "--train", run.parent / "x"]),
        (convert.main, ["to-zero", run, "-o", run.parent / "zero.npz"]),
    ):
        assert "source.vocab" in said(command, *arguments, capfd=capfd)
    (run.parent / "pipe").unlink(missing_ok=True)
    os.mkfifo(run.parent / "pipe")
    line = said(translate.main, run, "--shortlist", run.parent / "pipe", "-i", text, capfd=capfd)
    assert "source.vocab" in line


def test_a_packed_checkpoint_of_zero_does_not_fill_the_memory(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(1 << 26, np.float32))
    with pytest.raises(CheckpointError, match=r"bomb.npz: not an .npz file \(.* bytes would become 268,"):
        read_zero(tmp_path / "bomb.npz")
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(CheckpointError, match="pipe.npz: is not a regular file"):
        read_zero(tmp_path / "pipe.npz")
    (tmp_path / "checkpoint").symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="it is a link to /dev/zero"):
        read_zero(tmp_path)


PARTS = ["config.yaml", "tokenizer/source.vocab", WEIGHTS, "checkpoints/step-99", "model.safetensors", "log.jsonl", "."]


@pytest.mark.parametrize("name", PARTS)
def test_no_output_takes_the_place_of_a_part_of_the_model(
    run: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    text, output = run.parent / "text", run / name
    for side in ("en", "de"):
        (run.parent / f"corpus.{side}").write_text("a b\n")
    (run.parent / "link").symlink_to(output)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for place in (output, run.parent / "link"):
        for command, arguments in (
            (shortlist.main, [run, "--train", run.parent / "corpus", "-o", place]),
            (translate.main, [run, "-i", text, "--device", "cpu", "-o", place]),
            (translate.main, [run / "checkpoints/step-10", "-i", text, "--device", "cpu", "-o", place]),
            (evaluate.main, [run, "--source", text, "--ref", text, "--device", "cpu", "--output", place]),
            (average.main, [run, "--last", 2, "-o", place]),
        ):
            assert "is a part of the model" in said(command, *arguments, capfd=capfd)
    zero = output.with_suffix(".npz") if output.suffix else output / "zero.npz"
    if "/" in name:
        assert "is a part of the model" in said(convert.main, "to-zero", run, "-o", zero, capfd=capfd)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_outputs_of_ones_own_may_lie_in_a_run(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for side in ("en", "de"):
        (run.parent / f"corpus.{side}").write_text("a b\n")
    for name in ("shortlist", "shortlist"):  # the second replaces the first
        arguments = [run, "--train", run.parent / "corpus", "-o", run / name]
        assert shortlist.main([str(argument) for argument in arguments]) == 0
    assert average.main([str(run), "--last", "2", "-o", str(run / "mean")]) == 0
