"""Kernels are checked in processes of their own, so that one that crashes or hangs harms nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

import torch

from nmt.files import temporary_directory
from nmt.kernel_check.cases import FORMS, DifferenceError, check_key
from nmt.kernel_check.needs import FORWARD, plain
from nmt.system import usable_cores

PACKAGE: Final = Path(__file__).parents[1]

MOST_TIMES: Final = 3
"""So often what does not end in time is tried."""


class Outcome(NamedTuple):
    """What became of a check."""

    state: Literal["right", "wrong", "undecided"]
    reason: str = ""
    """How it is wrong, or why it could not be tried"""
    timed_out: bool = False
    tries: int = 1
    """How often in turn it could not be tried, or not in time"""
    when: float = 0.0
    """Seconds since 1970 of the last time"""

    @property
    def is_final(self) -> bool:
        """Whether it is left at that."""
        return self.state != "undecided" or (self.timed_out and self.tries >= MOST_TIMES)


GPU_BYTES: Final = 2 << 30

HOST_BYTES: Final = 3 << 30
"""Memory that a process may need."""

FIRST: Final = "the first kernel"
"""What is tried before all others."""

_PARENT_DEATH_SIGNAL: Final = 1
"""As prctl(2) numbers it."""

Tell = Callable[[str, Outcome], object]


class Task(NamedTuple):
    """What a process is to check."""

    seconds: Mapping[str, float]
    """By name, in their order, how long each may take"""
    device: str
    plugins: Sequence[str] = ()
    """Files that register cells"""

    def command(self) -> list[str]:
        """What checks all of it and for each name writes name, state and reason, a line of JSON. It may end early."""
        code = "import sys; from nmt.kernel_check.trials import work; work(sys.argv[1])"
        return [sys.executable, "-c", code, json.dumps(self)]


def work(text: str) -> None:
    """The process of a `Task` as JSON: it ends at the first check that could not be tried, which may leave no GPU."""
    if sys.platform == "linux":  # also when the parent is killed and can end nothing itself
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    task = Task(*json.loads(text))
    for number, path in enumerate(task.plugins):
        spec = importlib.util.spec_from_file_location(f"nmt_kernel_check_{number}", path)
        assert spec is not None and spec.loader is not None
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    for name, seconds in task.seconds.items():
        signal.alarm(int(seconds) + 10)  # where the parent does not end it
        outcome = check_one(name, torch.device(task.device))
        print(json.dumps([name, outcome.state, outcome.reason]), flush=True)
        if outcome.state == "undecided":
            break


def check_one(name: str, device: torch.device) -> Outcome:
    """What is found of a key, or of one without gradients. Only results that differ are wrong."""
    where = ""
    try:
        if name == FIRST:
            from nmt.kernel_check.first import add_two_vectors

            add_two_vectors(device)
            return Outcome("right")
        # What is exact is not rounded to TF32 here; kernels do not either.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        for sizes, storage in FORMS:
            where = f"{str(storage).removeprefix('torch.')}, width {sizes.hidden}: "
            with torch.set_grad_enabled(not name.endswith(FORWARD)):
                check_key(plain(name), device, sizes, storage)
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # what goes wrong there may show only now
    except DifferenceError as error:
        return Outcome("wrong", f"{where}{error}")
    except Exception as error:
        said = str(error).strip() or type(error).__name__
        return Outcome("undecided", explained(said, unknown=f"{where}{said.splitlines()[0]}"))
    return Outcome("right")


@dataclass
class Trial:
    """A process that does a task."""

    task: Task
    process: subprocess.Popen[bytes]
    folder: Path
    since: float
    """When it began with what comes next"""
    left: dict[str, float]
    """What it has not yet told of, as in `Task.seconds`"""
    read: int = 0
    """Bytes of its output that have been read"""
    has_told: bool = False


def how_many(device: torch.device, groups: int) -> int:
    """Processes that can check so many groups at a time, by cores and free memory."""
    free = torch.cuda.mem_get_info(device)[0] // GPU_BYTES
    with contextlib.suppress(OSError, ValueError, IndexError):
        available = Path("/proc/meminfo").read_text(encoding="ascii").partition("MemAvailable:")[2]
        free = min(free, 1024 * int(available.split()[0]) // HOST_BYTES)
    return max(1, min(groups, usable_cores(), free))


def try_out(tasks: Sequence[Task], tell: Tell, *, processes: int) -> None:
    """Do each task in a process, some at a time, and `tell` each outcome. What ends its process gets no second one."""
    waiting, running = list(tasks), list[Trial]()
    with temporary_directory("nmt-kernel-check") as folder:
        try:
            while waiting or running:
                while waiting and len(running) < processes:
                    running.append(_start(waiting.pop(0), folder=folder))
                time.sleep(0.05)
                for trial in list(running):
                    code = trial.process.poll()
                    for name, outcome in _told(trial):
                        tell(name, outcome)
                    name, seconds = next(iter(trial.left.items()), ("", math.inf))
                    if code is None and name and time.monotonic() - trial.since <= seconds:
                        continue
                    _kill(trial)
                    running.remove(trial)
                    if name and (code != 0 or not trial.has_told):
                        tell(name, _ending(trial, code, seconds))
                        del trial.left[name]
                    if trial.left:
                        waiting.insert(0, trial.task._replace(seconds=trial.left))
        finally:
            for trial in running:
                _kill(trial)


def _start(task: Task, *, folder: Path) -> Trial:
    own = Path(tempfile.mkdtemp(dir=folder))
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with (own / "output").open("wb") as output, (own / "errors").open("wb") as errors:
        # In a session of its own: Ctrl-C is for us, who then end it with all that it has started.
        process = subprocess.Popen(
            task.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment,
            start_new_session=True,
        )  # fmt: skip
    return Trial(task, process, own, time.monotonic(), dict(task.seconds))


def _told(trial: Trial) -> Iterator[tuple[str, Outcome]]:
    """What it has told since the last call."""
    with (trial.folder / "output").open("rb") as stream:
        stream.seek(trial.read)
        lines = stream.read().splitlines(keepends=True)
    for line in lines:
        if not line.endswith(b"\n"):
            return
        trial.read += len(line)
        with contextlib.suppress(ValueError, TypeError):  # what a compiler says is no outcome
            name, state, reason = json.loads(line)
            if trial.left.pop(name, None) is not None:
                trial.since, trial.has_told = time.monotonic(), True
                if state == "undecided":  # a compiler's own words say more
                    reason = explained(f"{reason}\n{_errors(trial)}", unknown=reason)
                yield name, Outcome(state, reason)


def _ending(trial: Trial, code: int | None, seconds: float) -> Outcome:
    """Of the check at which a process has ended, or has to be ended."""
    if code is None:
        return Outcome("undecided", f"it has not ended in {seconds:.0f} seconds", timed_out=True)
    return Outcome("undecided", ended_by(-code) if code < 0 else explained(_errors(trial)))


def _errors(trial: Trial) -> str:
    return (trial.folder / "errors").read_text(encoding="utf-8", errors="replace")


def _kill(trial: Trial) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(trial.process.pid, signal.SIGKILL)
    trial.process.wait()


_KNOWN: Final = (
    ("Python.h", "Triton needs Python's C headers", "install python3-dev (python3-devel on Fedora)"),
    ("Failed to find C compiler", "Triton needs a C compiler", "install gcc or clang, or set CC to one"),
    ("libcuda.so", "Triton does not find the library of NVIDIA's driver", "set TRITON_LIBCUDA_PATH to its folder"),
    ("Cannot find ptxas", "Triton does not find its assembler ptxas", "install Triton again"),
    ("No space left", "the disk with Triton's cache is full", "free some of it, or set TRITON_CACHE_DIR"),
    ("Disk quota exceeded", "the quota of Triton's cache is used up", "free some of it, or set TRITON_CACHE_DIR"),
    ("Read-only file system", "Triton's cache cannot be written to", "set TRITON_CACHE_DIR to a folder that can"),
    ("Permission denied", "Triton's cache cannot be written to", "set TRITON_CACHE_DIR to a folder that can"),
    ("out of memory", "the GPU has too little free memory", "end what uses it (nvidia-smi lists it)"),
    ("OUT_OF_MEMORY", "the GPU has too little free memory", "end what uses it (nvidia-smi lists it)"),
    ("ALLOC_FAILED", "the GPU has too little free memory", "end what uses it (nvidia-smi lists it)"),
    ("busy or unavailable", "another process has the GPU to itself", "end it, or set compute mode 0 (nvidia-smi -c 0)"),
    ("no kernel image", "this PyTorch is not built for such a GPU", "install a PyTorch that is (pytorch.org)"),
    ("driver version is insufficient", "NVIDIA's driver is too old for this PyTorch", "install a newer driver"),
    ("driver on your system is too old", "NVIDIA's driver is too old for this PyTorch", "install a newer driver"),
    ("Cannot allocate memory", "this machine has too little free memory", "end what uses it"),
    ("MemoryError", "this machine has too little free memory", "end what uses it"),
)
"""What messages say, what that means, and what mends it."""


def explained(text: str, *, unknown: str = "") -> str:
    """The meaning of the messages in `text`, which may be many lines; `unknown` if none is known, or its last line."""
    for word, meaning, mend in _KNOWN:
        if word in text:
            return f"{meaning}: {mend}"
    lines = text.strip().splitlines()
    return unknown or (lines[-1].strip() if lines else "it printed nothing")


def ended_by(number: int) -> str:
    """What it means that a process was ended by a signal."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    hint = "; if no user did it, this machine has too little free memory" if number == signal.SIGKILL else ""
    return f"it was ended by {name}{hint}"
