"""Stopping and resuming a run: bit-identical on the CPU, refused where the model or the data differ."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.ops import native
from nmt.training import run_dir
from nmt.training.distributed import World
from nmt.training.state import environment, environment_changes
from tests.subword_run import OPTIONS
from tests.tiny_training import before_step, events, nmt_train, same, training_state, write_config, write_corpus

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int, config: Path, *arguments: str) -> None:
    """Train until SIGTERM arrives during the update after `step` others; that one is finished."""
    with monkeypatch.context() as patch:
        before_step(patch, step, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert nmt_train(config, *arguments) == 143


SUBWORDS = {"tokenizer": "sentencepiece", "tokenizer_options": OPTIONS}
"""Drawn anew in each epoch."""
PLATEAU = {"average_after": 1, "validate_every": 3, "lr": 1.0, "early_stopping_metric": "loss"}
"""At this rate the third validation is worse than the first, and the average begins."""
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "plain": {},
    # 120 pairs are 15 batches: 3 updates of 4 and one of 3 batches in an epoch
    "accumulated": {"training": {"accumulate": 4}},
    "ema": {"training": {"ema_decay": 0.9, "optimizer": "adam_tf"}},
    "plateau": {"training": PLATEAU},
    **{name: {"training": {"optimizer": name}} for name in ("adafactor", "adagrad", "muon")},
    "sgd": {"training": {"optimizer": "sgd", "optimizer_options": {"momentum": 0.9}, "schedule": "noam"}},
    "score": {"training": {"schedule": "score", "schedule_options": {"patience": 1}, "validate_every": 3}},
    "r_drop": {"training": {"loss": "r_drop", "accumulate": 2, "precision": "bf16"}},
    "bf16": {"training": {"precision": "bf16"}, "model": {"cell": "lstm"}},
    # 8 pairs of dev several times in an epoch, in the middle of which the run is stopped
    "sampled": {"data": {"train": ["train", "dev"], "sampling_weights": [1.0, 2.0]}, "training": {"accumulate": 3}},
    "subwords": {"data": SUBWORDS},
    # Samples at 5 and 10, of which the second comes after the resume
    "samples": {"training": {"sample_every": 5, "ema_decay": 0.9}},
    "by epoch": {"training": {"validate_every": None, "batch_sentences": 24, "schedule": "epoch", "keep_last": 9}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_resumed_run_equals_the_undisturbed_one(folder: Path, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    """Stopped in the middle of an epoch, between two log lines and two validations."""
    monkeypatch.chdir(folder)
    config = write_config(folder, **VARIANTS[variant])
    straight, resumed = folder / "straight", folder / "resumed"
    assert nmt_train(config, "--set", f"run_dir={straight}") == 0
    stop_at(monkeypatch, 7, config, "--set", f"run_dir={resumed}")
    assert (resumed / "checkpoints" / "step-8").is_dir()
    assert nmt_train(config, "--set", f"run_dir={resumed}") == 0
    weights = [(run / "checkpoints/step-12/model.safetensors").read_bytes() for run in (straight, resumed)]
    assert weights[0] == weights[1]
    assert same(training_state(straight, 12), training_state(resumed, 12))
    samples = [events(run, kinds=("samples",)) for run in (straight, resumed)]
    assert samples[0] == samples[1]
    interruption = {"event": "checkpoint", "step": 8, "path": "step-8"}
    extra = [event for event in events(resumed) if event not in events(straight)]
    assert [{key: event[key] for key in interruption} for event in extra] == [interruption]
    assert [event for event in events(resumed) if event not in extra] == events(straight)


def test_a_closed_terminal_saves(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(folder)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        with monkeypatch.context() as patch:
            before_step(patch, 7, lambda: os.kill(os.getpid(), signal.SIGHUP))
            assert nmt_train(config) == 129
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert "stopped by SIGHUP at update 8" in capsys.readouterr().err
    assert (folder / "run/checkpoints/step-8").is_dir()


def test_under_nohup_a_closed_terminal_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(folder, training={"max_steps": 3})
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with monkeypatch.context() as patch:
            before_step(patch, 1, lambda: os.kill(os.getpid(), signal.SIGHUP))
            assert nmt_train(config) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_terminal_that_is_gone_takes_no_run_along(folder: Path) -> None:
    """SIGHUP comes with it, and every line that is still to be shown fails with an I/O error."""
    config = write_config(folder, training={"max_steps": 100_000, "save_every": 100_000, "log_every": 1})
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.chdir(REPOSITORY)
        os.execl(sys.executable, sys.executable, "-m", "nmt.cli.train", "--config", str(config), "--device", "cpu")
    log, deadline = folder / "run/log.jsonl", time.monotonic() + 60
    while time.monotonic() < deadline and not (log.is_file() and len(log.read_bytes().splitlines()) > 20):
        with contextlib.suppress(OSError):
            os.read(terminal, 1 << 16)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 129
    assert events(folder / "run", kinds=("checkpoint",))
    (end,) = events(folder / "run", kinds=("end",))
    assert end["reason"] == "stopped by SIGHUP"


def test_signal_at_a_validation_step_leaves_the_validation_for_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(folder)
    straight, resumed = folder / "straight", folder / "resumed"
    assert nmt_train(config, "--set", f"run_dir={straight}") == 0
    stop_at(monkeypatch, 5, config, "--set", f"run_dir={resumed}")
    assert not events(resumed, kinds=("validation",))
    assert nmt_train(config, "--set", f"run_dir={resumed}") == 0
    assert events(resumed, kinds=("validation",)) == events(straight, kinds=("validation",))
    assert same(training_state(straight, 12), training_state(resumed, 12))


@pytest.mark.parametrize(
    "data", [pytest.param({}, id="words"), pytest.param(SUBWORDS, id="subwords", marks=pytest.mark.slow)]
)
def test_killed_process_resumes_and_ends_at_the_same_weights(folder: Path, data: dict[str, Any]) -> None:
    config = write_config(folder, data=data, training={"max_steps": 60, "save_every": 10, "keep_last": 9})
    assert nmt_train(config, "--set", f"run_dir={folder / 'straight'}") == 0
    run = folder / "run"
    command = [sys.executable, "-m", "nmt.cli.train", "--config", str(config), "--device", "cpu"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        cwd=REPOSITORY,
    )
    deadline = time.monotonic() + 60
    while not (run / "checkpoints/step-20").is_dir() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.kill()
    assert process.wait() in (-signal.SIGKILL, 0)
    assert nmt_train(config) == 0
    paths = [folder / name / "checkpoints/step-60/model.safetensors" for name in ("straight", "run")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    steps = [event["step"] for event in events(run, kinds=("train",))]
    assert steps == sorted(set(steps)), "updates that were done twice are in the log once"


def test_killed_between_a_checkpoint_and_its_line_in_the_log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, log = write_config(folder), folder / "run" / "log.jsonl"
    stop_at(monkeypatch, 7, config)
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"step-8"' not in line))
    assert nmt_train(config) == 0
    saved = [event["path"] for event in events(folder / "run", kinds=("checkpoint",))]
    assert saved == ["step-6", "step-8", "step-12"]


def test_finished_run_says_so_and_goes_on_when_the_limit_is_raised(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(folder, training={"max_steps": 4, "validate_every": 2})
    assert nmt_train(config) == 0
    before = {path: path.stat().st_mtime_ns for path in (folder / "run/checkpoints").rglob("*")}
    capsys.readouterr()
    assert nmt_train(config) == 0
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert "finished" in said and "max_steps = 4" in said
    assert {path: path.stat().st_mtime_ns for path in (folder / "run/checkpoints").rglob("*")} == before
    assert nmt_train(config, "--set", "training.max_steps=6") == 0
    assert (folder / "run/checkpoints/step-6").is_dir()


def test_other_model_or_data_order_is_refused_with_the_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, training={"max_steps": 2})
    assert nmt_train(config) == 0
    changed = ("model.hidden_size=16", "seed=5", "training.lr=0.5", "data.max_length=9")
    capsys.readouterr()
    assert nmt_train(config, *(word for key in changed for word in ("--set", key))) == 2
    said = capsys.readouterr().err
    for line in ("model.hidden_size: 8 -> 16", "seed: 1 -> 5", "data.max_length: 100 -> 9"):
        assert line in said
    assert "training.lr" not in said, "that one would be allowed"


def test_other_changes_are_listed_and_take_effect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(folder, training={"max_steps": 2})
    assert nmt_train(config) == 0
    capsys.readouterr()
    changed = ("training.max_steps=4", "training.lr=0.002", "training.optimizer_options.beta1=0.5")
    assert nmt_train(config, *(word for key in changed for word in ("--set", key))) == 0
    said = capsys.readouterr().err
    assert "training.lr: 0.01 -> 0.002" in said
    assert events(folder / "run", kinds=("train",))[-1]["lr"] == 0.002
    group = training_state(folder / "run", 4)["updater"]["optimizer"]["state"]["param_groups"][0]
    assert group["betas"] == (0.5, 0.999)


def test_another_number_of_threads_and_other_kernels_are_warned_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, threads = write_config(folder, training={"max_steps": 2}), torch.get_num_threads()
    assert nmt_train(config) == 0
    assert nmt_train(config, "--set", "training.max_steps=4") == 0
    assert "bit for bit" not in capsys.readouterr().err
    try:
        torch.set_num_threads(threads + 1)
        assert nmt_train(config, "--set", "training.max_steps=6", "--set", "kernels=reference") == 0
    finally:
        torch.set_num_threads(threads)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "bit for bit" in line)
    assert f"threads {threads} -> {threads + 1}" in line
    assert native.problem() or (", kernels C " in line and line.endswith(" -> PyTorch"))


def test_another_version_of_a_library_is_warned_of() -> None:
    now = environment(World(torch.device("cpu")))
    assert environment_changes(now, now) == environment_changes({}, now) == []
    (line,) = environment_changes(
        {**now, "PyTorch": "1.0", "MKL_CBWR": "AUTO,STRICT", "gone": "1"}, {**now, "MKL_CBWR": "no"}
    )
    assert line.endswith(f"changed: MKL_CBWR AUTO,STRICT -> no, PyTorch 1.0 -> {torch.__version__}")


@pytest.mark.parametrize(
    ("before", "after", "averaged"),
    [
        ({}, {"schedule": "score"}, None),
        ({}, {"ema_decay": 0.9}, 2),
        ({"ema_decay": 0.5}, {}, None),
        ({"ema_decay": 0.5}, {"average_after": 1}, 0),
        (PLATEAU, {"ema_decay": 0.9}, 2),
    ],
    ids=["schedule", "average", "no average", "average at a plateau", "average from the start"],
)
def test_schedule_and_average_can_be_changed(
    folder: Path, before: dict[str, Any], after: dict[str, Any], averaged: int | None
) -> None:
    """`averaged`: the updates of the second command, as the average counts them that starts with it."""
    assert nmt_train(write_config(folder, training={"max_steps": 12, **before})) == 0
    assert nmt_train(write_config(folder, training={"max_steps": 14, **after})) == 0
    assert training_state(folder / "run", 14)["updater"].get("average", {}).get("updates") == averaged
    losses = [event["loss"] for event in events(folder / "run", kinds=("validation",))]
    assert losses[-1] != losses[-2], "other weights are validated than before"


def test_changed_training_text_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vocab = folder / "vocab"
    config = write_config(folder, training={"max_steps": 2})
    assert nmt_train(config) == 0
    shutil.copy(folder / "run/tokenizer/source.vocab", vocab)
    options = {"source_vocab": str(vocab), "joint": True}
    config = write_config(folder, data={"tokenizer_options": options}, training={"max_steps": 2})
    assert nmt_train(config, "--overwrite") == 0
    with (folder / "train.en").open("a") as source, (folder / "train.de").open("a") as target:
        source.write("ba da\n")
        target.write("ab ad\n")
    capsys.readouterr()
    assert nmt_train(config, "--set", "training.max_steps=4") == 2
    assert "the training text has changed" in capsys.readouterr().err


def test_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(folder)
    assert nmt_train(config) == 0
    expected = (folder / "run/checkpoints/step-12/model.safetensors").read_bytes()
    weights = folder / "run/checkpoints/step-12/model.safetensors"
    damaged = bytearray(expected)
    damaged[-5] ^= 1  # one bit, which the format itself would not notice
    weights.write_bytes(damaged)
    capsys.readouterr()
    assert nmt_train(config) == 0
    said = capsys.readouterr().err
    assert "step-12: damaged checkpoint" in said and "resuming" in said and "step-6" in said
    assert weights.read_bytes() == expected
    assert (folder / "run/checkpoints/damaged-step-12").is_dir()


def test_checkpoints_of_another_version_stay_as_they_are(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(folder)
    assert nmt_train(config) == 0
    capsys.readouterr()
    monkeypatch.setattr(run_dir, "STATE_FORMAT", 99)
    assert nmt_train(config) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "step-12: training state of format 2, this version reads 99" in line
    assert sorted(path.name for path in (folder / "run/checkpoints").glob("*step-*")) == ["step-12", "step-6"]


@pytest.mark.parametrize("file", ["training.pt", "model.safetensors"])
def test_truncated_checkpoints_are_all_named(folder: Path, capsys: pytest.CaptureFixture[str], file: str) -> None:
    config = write_config(folder)
    assert nmt_train(config) == 0
    for step in (6, 12):
        path = folder / f"run/checkpoints/step-{step}" / file
        path.write_bytes(path.read_bytes()[:100])
    capsys.readouterr()
    assert nmt_train(config) == 1
    said = capsys.readouterr().err
    assert "step-12: damaged" in said and "step-6: damaged" in said and "every checkpoint is damaged" in said
