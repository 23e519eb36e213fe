"""Tokenizer training and encoding killed at random moments, compared byte by byte with both undisturbed."""

from __future__ import annotations

import collections
import math
import random
import subprocess
import sys
import time
from pathlib import Path

from torture_runs import SIGNALS, expect, start_process, until, wait

from nmt.errors import DataError
from nmt.interop import run_layout
from tests.tiny_training import write_config, write_corpus

PAIRS = 40_000
PIECES = 300
VERIFIED = "verified.json"
"""A file of records such as file times, which differ from run to run."""
LONGEST = {"any moment": 0.0, "tokenizer": 0.5, "encoding": 0.2}
"""The longest time from the beginning of a moment to the kill, in seconds."""


def data_kills(work: Path, *, count: int, seed: int) -> dict[str, int]:
    """Kill the preparation of corpora at least `count` times; each preparation is restarted until it is complete.

    The kills come while the tokenizer is trained, while text is encoded, and at any moment. Tokenizer, encoded corpora
    and the weights after one update must be equal to the files of an undisturbed run.

    Raises:
        DataError: a file differs, or a process ended in the wrong way.
    """
    chance = random.Random(seed)
    found: collections.Counter[str] = collections.Counter()
    write_corpus(work, train=PAIRS, dev=200)
    options = {"vocab_size": PIECES}
    config = write_config(
        work,
        data={"tokenizer": "sentencepiece", "tokenizer_options": options, "workers": 2},
        training={"max_steps": 1, "validate_every": 1},
        evaluation={"max_sentences": 4},
    )
    command = [sys.executable, "-m", "nmt.cli.train", "--config", str(config), "--device", "cpu", "--set"]
    straight = work / "straight"
    started = time.monotonic()
    expect(start_process([*command, f"run_dir={straight}"], work), 0, f"{work}: the undisturbed run")
    life = time.monotonic() - started
    while found["kills"] < count:
        run = work / f"run-{found['corpora prepared'] + 1}"
        while True:
            process = start_process([*command, f"run_dir={run}"], work)
            wanted = chance.choices(list(SIGNALS), weights=(7, 1, 1, 1))[0]
            moment = chance.choice(("any moment", "tokenizer", "encoding"))
            _await(process, run, moment, chance.uniform(0, life))
            time.sleep(chance.uniform(0, LONGEST[moment]))
            activity = _activity(run)
            if found["kills"] >= count or process.poll() is not None:
                break
            process.send_signal(wanted)
            code = wait(process, work)
            if code == 0:
                break
            if code not in (SIGNALS[wanted], -wanted):
                raise DataError(f"{run}: {wanted.name} at {moment} ended with exit code {code}; see {work}/said")
            found["kills"] += 1
            found[f"kills at {activity or 'reading, start or update'}"] += 1
        expect(process, 0, f"{work}: the last life of {run}")
        compare_data(straight, run)
        found["corpora prepared"] += 1
    return {"kills survived": found.pop("kills"), "line pairs of a corpus": PAIRS, **dict(sorted(found.items()))}


def _await(process: subprocess.Popen[bytes], run: Path, moment: str, delay: float) -> None:
    """Wait for a moment of this kind, with `any moment` for `delay` seconds, or for the end of the process."""
    end = time.monotonic() + delay if moment == "any moment" else math.inf
    until(lambda: process.poll() is not None or moment == _activity(run) or time.monotonic() > end)


def compare_data(straight: Path, run: Path) -> None:
    """Tokenizer, encoded corpora and weights of two runs; DataError naming the first file that differs."""
    ours, theirs = _made(straight), _made(run)
    if different := sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)):
        raise DataError(f"{run}: {different[0]} differs from {straight}")


def _made(run: Path) -> dict[str, bytes]:
    files = [*run.glob("tokenizer/*"), *run.glob("cache/*/*"), *run.glob(f"checkpoints/*/{run_layout.WEIGHTS}")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files if path.is_file() and path.name != VERIFIED}


def _activity(run: Path) -> str | None:
    """What a process is doing, or was doing when it was killed, as far as its files show it."""
    if any(run.glob("cache/*.partial")):
        return "encoding"
    if (run / "lock").is_file() and (run / "cache/files.json").is_file() and not (run / "tokenizer").is_dir():
        return "tokenizer"
    return None
