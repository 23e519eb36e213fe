"""Runs nmt-train and observes it from outside: anonymous memory of it and its children, current phase, times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nmt.errors import DataError

ROOT = Path(__file__).resolve().parents[1]
INTERVAL = 0.05
"""Seconds between two observations."""
PHASES = ("reading", "subwords", "encoding", "training")


@dataclass
class Watched:
    """The observations of a process; memory in MiB."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By phase."""
    peak: dict[str, float] = field(default_factory=dict)
    """Peak anonymous memory by phase, all processes together."""
    began_after: float | None = None
    """Seconds from the start of the process to `start` in its log: the data is open, the model is built."""
    first_update_after: float | None = None
    killed: bool = False


def watch(config: Path, run: Path, *, overrides: list[str], kill: Callable[[], bool] | None = None) -> Watched:
    """Run nmt-train to its end, or send SIGKILL as soon as `kill` returns true.

    Raises DataError with the command's last line if it fails.
    """
    seen, said = Watched(), run.parent / "stderr.txt"
    events = _new_events(run / "log.jsonl")
    command = [sys.executable, "-m", "nmt.cli.train", "--config", str(config), "--device", "cpu"]
    command += [word for override in overrides for word in ("--set", override)]
    with said.open("w+", encoding="utf-8") as stderr:
        started = last = time.monotonic()
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, stderr=stderr, env=environment)
        while process.poll() is None:
            now, phase = time.monotonic(), _phase(run, said)
            seen.seconds[phase] = seen.seconds.get(phase, 0.0) + now - last
            seen.peak[phase] = max(seen.peak.get(phase, 0.0), anonymous_memory(process.pid))
            for event in next(events):
                if event["event"] == "start" and seen.began_after is None:
                    seen.began_after = now - started
                if event["event"] == "train" and seen.first_update_after is None:
                    seen.first_update_after = now - started
            if kill is not None and kill():
                process.kill()
                seen.killed = True
            last = now
            time.sleep(INTERVAL)
        if process.returncode != 0 and not seen.killed:
            raise DataError(f"nmt-train failed: {(_last_line(stderr))}")
    return seen


def anonymous_memory(pid: int) -> float:
    """RssAnon of a process and all its descendants, in MiB; 0 for a process that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        children = [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text(encoding="utf-8").split()
        ]
    except (OSError, ValueError):
        return 0.0
    own = next((int(line.split()[1]) / 1024 for line in status if line.startswith("RssAnon")), 0.0)
    return own + sum(map(anonymous_memory, children))


def _phase(run: Path, said: Path) -> str:
    if not (run / "tokenizer").is_dir():
        return "subwords" if "making the" in said.read_text(encoding="utf-8", errors="replace") else "reading"
    return "encoding" if not any(done_corpora(run)) else "training"


def done_corpora(run: Path) -> Iterator[Path]:
    """Folders of complete encoded training corpora."""
    return (path for path in run.glob("cache/train-*") if path.suffix != ".partial")


def marked_pairs(run: Path) -> int:
    """Line pairs that need not be encoded again after a kill."""
    for mark in run.glob("cache/train-*.partial/done.json"):
        try:
            return int(json.loads(mark.read_text(encoding="utf-8"))["report"]["read"])
        except (OSError, ValueError):  # replaced at this moment
            return 0
    return 0


def forget(path: Path) -> None:
    """Drop a file from the system's cache, as after a restart of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def train_events(log: Path) -> list[dict[str, Any]]:
    """The events of updates in log.jsonl."""
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [event for event in events if event["event"] == "train"]


def _new_events(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield, without end, the whole lines added to log.jsonl since the last call."""
    at = path.stat().st_size if path.is_file() else 0
    while True:
        found = path.read_bytes()[at:] if path.is_file() else b""
        whole = found[: found.rfind(b"\n") + 1]
        at += len(whole)
        yield [json.loads(line) for line in whole.splitlines()]


def _last_line(stream: IO[str]) -> str:
    stream.seek(0)
    return (stream.read().strip().splitlines() or ["no message"])[-1]
