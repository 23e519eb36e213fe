"""Training that is killed at random moments and started again, compared bit by bit with undisturbed training."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nmt.errors import DataError
from nmt.interop import run_layout
from nmt.training.logs import read_events
from tests.tiny_training import events, same, training_state, write_config, write_corpus

REPOSITORY = Path(__file__).resolve().parents[1]
STEPS = 400
VALIDATE_EVERY, SAVE_EVERY, LOG_EVERY = 40, 10, 5
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "defaults": {},
    "EMA, accumulation, LRN": {
        "training": {"accumulate": 3, "ema_decay": 0.9, "optimizer": "adam_tf"},
        "model": {"cell": "lrn"},
    },
    "sampling temperature, ATR": {
        "data": {"train": ["train", "dev"], "sampling_temperature": 5.0},
        "training": {"accumulate": 2},
        "model": {"cell": "atr"},
    },
    "bf16, LSTM": {"training": {"precision": "bf16", "ema_decay": 0.99}, "model": {"cell": "lstm"}},
    # The rate falls at each score that is not better, so patience ends before the last update.
    "score schedule and patience, SRU": {
        "training": {"schedule": "score", "schedule_options": {"patience": 1}, "patience": 4, "lr": 0.1},
        "model": {"cell": "sru"},
    },
    "temperature, bf16, EMA, accumulation, patience": {
        "data": {"train": ["train", "dev"], "sampling_temperature": 2.0},
        "training": {"precision": "bf16", "ema_decay": 0.9, "accumulate": 2, "patience": 6, "schedule": "score"},
        "model": {"cell": "olrn"},
    },
}
SIGNALS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129}
"""The signals that are sent, and the exit codes that must follow."""
PATIENCE = 120  # seconds


def kills(work: Path, *, count: int, seed: int) -> dict[str, int]:
    """Kill runs at least `count` times; every run must end with the results of an undisturbed run.

    Seven of ten kills are SIGKILL, the others SIGTERM, Ctrl-C or SIGHUP, which must end with their exit code. A kill
    comes at any moment since the start of the process, while a checkpoint is written, or in a validation.

    Raises:
        DataError: a result differs, or a process ended in the wrong way.
    """
    chance = random.Random(seed)
    found: collections.Counter[str] = collections.Counter()
    while found["kills"] < count:
        folder = work / f"run-{found['runs'] + 1}"
        folder.mkdir()
        variant = list(VARIANTS)[found["runs"] % len(VARIANTS)]
        config = _config(folder, VARIANTS[variant])
        command = [sys.executable, "-m", "nmt.cli.train", "--config", str(config), "--device", "cpu", "--set"]
        straight, resumed = folder / "straight", folder / "resumed"
        started = time.monotonic()
        expect(start_process([*command, f"run_dir={straight}"], folder), 0, f"{folder}: the undisturbed run")
        life = time.monotonic() - started
        while True:
            process = start_process([*command, f"run_dir={resumed}"], folder)
            wanted = chance.choices(list(SIGNALS), weights=(7, 1, 1, 1))[0]
            moment = chance.choice(("any moment", "checkpoint", "validation"))
            if found["kills"] >= count or not _moment(process, resumed, moment, chance.uniform(0, life), chance):
                break
            process.send_signal(wanted)
            code = wait(process, folder)
            if code == 0:  # it ended before the signal came
                break
            if code not in (SIGNALS[wanted], -wanted):  # -wanted before the first line of nmt runs
                raise DataError(f"{folder}: {wanted.name} at {moment} ended with exit code {code}; see {folder}/said")
            found["kills"] += 1
            found[wanted.name] += 1
            found[f"at {_activity(resumed)}"] += 1
            found[f"settings: {variant}"] += 1
        expect(process, 0, f"{folder}: the last life of the run")
        compare(straight, resumed)
        found["runs"] += 1
    return {
        "kills survived": found.pop("kills"),
        "runs compared bit by bit": found.pop("runs"),
        **dict(sorted(found.items())),
    }


def ranks(work: Path, *, size: int, count: int, seed: int) -> dict[str, int]:
    """Kill one of `size` processes under torchrun `count` times; all must end soon each time; then compare the runs.

    Raises:
        DataError: a result differs, or processes hang.
    """
    chance = random.Random(seed)
    config = _config(work, {"training": {"accumulate": 2}})
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size), "--master-port"]
    command = ["-m", "nmt.cli.train", "--config", str(config), "--device", "cpu", "--set"]
    straight, resumed = work / "straight", work / "resumed"

    def start(run: Path) -> subprocess.Popen[bytes]:
        return start_process([*torchrun, str(chance.randrange(20_000, 50_000)), *command, f"run_dir={run}"], work)

    expect(start(straight), 0, f"{work}: the undisturbed run")
    longest = 0.0
    for number in range(count):
        process = start(resumed)
        _moves_on(process, resumed)
        time.sleep(chance.uniform(0, 1))
        children = _children(process.pid)
        if not children:
            raise DataError(f"{work}: the processes ended before kill {number + 1}; see {work}/said")
        os.kill(chance.choice(children), signal.SIGKILL)
        started = time.monotonic()
        code = wait(process, work)
        longest = max(longest, time.monotonic() - started)
        if code == 0:
            raise DataError(f"{work}: one of {size} processes was killed, and torchrun ended with exit code 0")
        if any(Path(f"/proc/{child}").exists() for child in children):
            raise DataError(f"{work}: a process still runs after torchrun has ended")
    expect(start(resumed), 0, f"{work}: the last life of the run")
    compare(straight, resumed)
    return {"processes": size, "kills of one of them": count, "longest wait for the others (seconds)": round(longest)}


def compare(straight: Path, resumed: Path) -> None:
    """Compare weights, training state and log of two runs; resuming may only add checkpoints.

    Raises:
        DataError: one of them differs.
    """
    last = run_layout.last_step(straight)
    name = f"checkpoints/step-{last}"
    if last is None or run_layout.last_step(resumed) != last:
        raise DataError(f"{resumed}: its last checkpoint is not {name}, the last one of {straight}")
    if (straight / name / "model.safetensors").read_bytes() != (resumed / name / "model.safetensors").read_bytes():
        raise DataError(f"{resumed}: the weights differ from {straight}")
    if not same(training_state(straight, last), training_state(resumed, last)):
        raise DataError(f"{resumed}: the training state differs from {straight}")
    kinds = ("train", "validation")
    saved, found = events(straight, kinds=("checkpoint",)), events(resumed, kinds=("checkpoint",))
    if events(straight, kinds=kinds) != events(resumed, kinds=kinds) or any(event not in found for event in saved):
        raise DataError(f"{resumed}: the log differs from {straight}")


def _config(folder: Path, changes: dict[str, dict[str, Any]]) -> Path:
    write_corpus(folder, train=600, dev=40)
    every = {"validate_every": VALIDATE_EVERY, "save_every": SAVE_EVERY, "log_every": LOG_EVERY}
    changes = {"model": {}, "training": {}} | changes
    training = {"max_steps": STEPS, **every, "keep_last": 3, **changes["training"]}
    data = dict(changes.get("data", {}))
    if "train" in data:
        data["train"] = [str(folder / name) for name in data["train"]]
    return write_config(folder, **changes | {"training": training, "data": data})


def start_process(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a process with one thread in a new session; its output is added to `folder`/said.

    It reacts to SIGHUP and Ctrl-C even if nohup, or a shell that runs this in the background, ignores them.
    """
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(
            command, stdout=said, stderr=said, env=environment, start_new_session=True, preexec_fn=_take_signals
        )


def _take_signals() -> None:
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def wait(process: subprocess.Popen[bytes], folder: Path) -> int:
    """Its exit code; DataError if it does not end."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise DataError(f"{folder}: process {process.pid} has not ended after {PATIENCE} seconds") from None


def expect(process: subprocess.Popen[bytes], code: int, what: str) -> None:
    """Wait for a process; DataError if it ends with another exit code."""
    if (found := wait(process, Path(what.partition(":")[0]))) != code:
        raise DataError(f"{what} ended with exit code {found}")


def until(condition: Callable[[], bool]) -> bool:
    """Wait for a condition; False if it is not met in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


def _moment(process: subprocess.Popen[bytes], run: Path, kind: str, delay: float, chance: random.Random) -> bool:
    """Wait for a moment of this kind; False if the process ended before."""
    if kind == "any moment":
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
    elif kind == "checkpoint":
        until(lambda: _writing(run) or process.poll() is not None)
        time.sleep(chance.uniform(0, 0.003))
    else:
        before = _updates(run)
        until(lambda: process.poll() is not None or (_validating(run) and _updates(run) > before))
        time.sleep(chance.uniform(0, 0.02))
    return process.poll() is None


def _moves_on(process: subprocess.Popen[bytes], run: Path) -> None:
    """Wait for an update, or the end."""
    before = _updates(run)
    until(lambda: _updates(run) > before or process.poll() is not None)


def _writing(run: Path) -> bool:
    return any(run.glob("checkpoints/.writing-*"))


def _last(run: Path) -> dict[str, Any]:
    try:
        return next((event for event in reversed(read_events(run)) if event["event"] == "train"), {})
    except (DataError, ValueError):
        return {}


def _updates(run: Path) -> int:
    return int(_last(run).get("step", 0))


def _validating(run: Path) -> bool:
    """Whether the last event in the log is an update that a validation follows."""
    try:
        return (last := read_events(run)[-1])["event"] == "train" and last["step"] % VALIDATE_EVERY == 0
    except (DataError, ValueError, IndexError):
        return False


def _activity(run: Path) -> str:
    """What a killed process was doing, as far as its files show it."""
    if _writing(run):
        return "a checkpoint being written"
    return "a validation" if _validating(run) else "start or update"


def _children(parent: int) -> list[int]:
    path = Path(f"/proc/{parent}/task/{parent}/children")
    try:
        return [int(child) for child in path.read_text().split()]
    except OSError:
        return []
