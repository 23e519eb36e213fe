"""Each operation is checked in a process of its own, so that one that crashes or hangs harms nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch

from nmt.kernel_check.record import PACKAGE, Findings

MOST_SECONDS: Final = 300
"""For one operation. Most of the time kernels are compiled, which are then in Triton's cache."""
MOST_PROCESSES: Final = 8
"""At a time; each has some memory of the GPU."""
EQUAL: Final = 0
DIFFERENT: Final = 10
UNDECIDED: Final = 11
"""Exit codes of a trial: right, wrong, and could not be tried, say because the GPU's memory is in use."""

Command = Callable[[str, torch.device], Sequence[str]]


class Trial(NamedTuple):
    """A process that checks an operation."""

    operation: str
    process: subprocess.Popen[bytes]
    output: Path
    end: float
    """When it has had its time."""


def command(operation: str, device: torch.device) -> list[str]:
    """What checks an operation: see `nmt.kernel_check.__main__`."""
    return [sys.executable, "-m", "nmt.kernel_check", operation, str(device)]


def try_out(
    operations: Iterable[str], device: torch.device, *, command: Command = command, seconds: float = MOST_SECONDS
) -> tuple[Findings, dict[str, str]]:
    """What is found of the operations, and why nothing could be of others."""
    waiting, running = list(operations), list[Trial]()
    verified, refused, undecided = set[str](), dict[str, str](), dict[str, str]()
    folder = tempfile.TemporaryDirectory(prefix="nmt-kernel-check-")
    try:
        while waiting or running:
            while waiting and len(running) < min(MOST_PROCESSES, os.cpu_count() or 1):
                operation = waiting.pop(0)
                output = Path(folder.name, operation)
                running.append(_start(operation, command(operation, device), output=output, seconds=seconds))
            time.sleep(0.05)
            for trial in [trial for trial in running if _has_ended(trial)]:
                running.remove(trial)
                code, last = _outcome(trial)
                if code == EQUAL:
                    verified.add(trial.operation)
                elif code == UNDECIDED:
                    undecided[trial.operation] = last
                else:
                    refused[trial.operation] = last if code == DIFFERENT else _how_it_ended(code, seconds, last)
    finally:
        for trial in running:
            _kill(trial)
        folder.cleanup()
    return Findings(frozenset(verified), refused), undecided


def _start(operation: str, words: Sequence[str], *, output: Path, seconds: float) -> Trial:
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with output.open("wb") as stream:
        # In a session of its own: Ctrl-C is for us, who then end it with all that it has started.
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=environment, start_new_session=True
        )
    return Trial(operation, process, output, time.monotonic() + seconds)


def _has_ended(trial: Trial) -> bool:
    return trial.process.poll() is not None or time.monotonic() > trial.end


def _outcome(trial: Trial) -> tuple[int | None, str]:
    """Exit code, None for one that has not ended in time, and last line."""
    code = trial.process.poll()
    _kill(trial)
    lines = trial.output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return code, lines[-1] if lines else ""


def _kill(trial: Trial) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(trial.process.pid, signal.SIGKILL)
    trial.process.wait()


def _how_it_ended(code: int | None, seconds: float, last: str) -> str:
    if code is None:
        return f"has not ended in {seconds:.0f} seconds"
    if code < 0:
        return f"ended by signal {-code}"
    return f"failed: {last}"
