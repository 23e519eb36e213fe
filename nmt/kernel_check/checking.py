"""Kernels are checked in processes of their own, so that one that crashes or hangs harms nothing else; what is found
out about a kind of GPU is kept in a file."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import json
import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

import torch

from nmt.compiling import BuildError, is_ours, own_directory
from nmt.files import replacing, temporary_directory
from nmt.kernel_check.cases import (
    FORMS,
    FORWARD,
    WITHOUT_TRITON,
    DifferenceError,
    check_key,
    groups,
    plain,
    plugin_files,
)
from nmt.ops.dispatch import load, triton_version
from nmt.system import usable_cores

logger = logging.getLogger(__name__)

PACKAGE: Final = Path(__file__).parents[1]

FIRST: Final = "the first kernel"
"""What is tried before all others: if the smallest kernel cannot run, they cannot either."""

MOST_SECONDS: Final = 300
"""For one check at the first try; twice as many at each further one. Most of the time kernels are compiled, which are
then in Triton's cache."""

MOST_TIMES: Final = 3
"""So often what does not end in time is tried."""

GPU_BYTES: Final = 2 << 30

HOST_BYTES: Final = 3 << 30
"""Memory that a process may need."""

_PARTS: Final = ("ops", "cells", "models", "kernel_check")
"""What the results depend on."""

_DRIVER: Final = Path("/proc/driver/nvidia/version")

_PARENT_DEATH_SIGNAL: Final = 1
"""As prctl(2) numbers it."""


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

    @property
    def why(self) -> str:
        """The reason why something could not be tried, and when it is again."""
        tries = "" if self.tries == 1 else f", {self.tries} times"
        again = "only python -m nmt.kernel_check tries again" if self.is_final else "tried again at the next start"
        return f"{self.reason}{tries} ({again})"


Tell = Callable[[str, Outcome], object]


def driver_version() -> str:
    """The version of NVIDIA's driver and of the CUDA it brings, as far as this machine tells."""
    found = []
    with contextlib.suppress(OSError):
        found.append(_DRIVER.read_text(encoding="utf-8", errors="replace").split("\n")[0])
    with contextlib.suppress(OSError, AttributeError):
        number = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number)) == 0:
            found.append(str(number.value))
    return ", CUDA ".join(found)


def record_file(device: torch.device, plugins: Iterable[Path] = ()) -> Path | None:
    """Where the findings of GPUs such as `device` are kept with these versions; None where nothing can be kept.

    `plugins` are files of a user's units, which the findings depend on, too.
    """
    properties = torch.cuda.get_device_properties(device)
    digest = hashlib.sha256()
    versions = (torch.__version__, torch.version.cuda, driver_version(), triton_version(), sys.version_info[:2])
    gpu = (properties.name, properties.major, properties.minor, properties.multi_processor_count)
    digest.update(repr((versions, gpu)).encode())
    for path in [*sorted(path for part in _PARTS for path in (PACKAGE / part).rglob("*.py")), *plugins]:
        digest.update(path.read_bytes() + b"\0")
    with contextlib.suppress(BuildError):
        return own_directory() / f"gpu-{digest.hexdigest()[:32]}.json"
    return None


def read_record(path: Path | None) -> dict[str, Outcome]:
    """The outcomes in a file by name; none where there is no such file of ours or it is damaged."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8")) if path and is_ours(path) else {}
        found = {str(name): Outcome(**outcome) for name, outcome in kept.items()}
        return {name: outcome for name, outcome in found.items() if outcome.state in ("right", "wrong", "undecided")}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def find_out(
    names: Sequence[str], device: torch.device, *, check: bool = True, again: bool = False
) -> dict[str, Outcome]:
    """What these checks find on this GPU: made where that is not known, unless `check` is false; `again` all."""
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    path, began = record_file(device, plugin_files(names)), time.time()
    with contextlib.ExitStack() as stack:
        if path is not None and check:  # wait for other processes that find out the same, of which one is enough
            with contextlib.suppress(OSError):  # of a directory that cannot be written to: all of them find out
                fcntl.flock(stack.enter_context(path.with_suffix(".lock").open("w")), fcntl.LOCK_EX)
        kept = read_record(path)
        right = {name for name, outcome in kept.items() if outcome.state == "right"}
        # An operation that is right with gradients is right without them.
        keys = {name: plain(name) if plain(name) in right else name for name in names}
        known = {name: kept[key] for name, key in keys.items() if key in kept}
        # Another process may just have failed to run the same check.
        settled = {name for name, outcome in known.items() if outcome.is_final or outcome.when >= began}
        missing = [name for name in names if again or name not in settled]
        if missing and check:
            known |= _checked(missing, device, {} if again else known, path)
    return {name: known[name] for name in names if name in known}


def _checked(
    names: Sequence[str], device: torch.device, known: Mapping[str, Outcome], path: Path | None
) -> dict[str, Outcome]:
    """Make these checks, the smallest kernel first; each result is kept at once and reported in a line."""
    found, start = dict[str, Outcome](), time.monotonic()

    def keep(name: str, outcome: Outcome) -> None:
        nonlocal path
        before = known.get(name)
        tries = before.tries + 1 if before and before.timed_out == outcome.timed_out else 1
        found[name] = outcome._replace(tries=tries, when=time.time())
        if path is None:
            return
        kept = {**read_record(path), name: found[name]}
        text = json.dumps({name: outcome._asdict() for name, outcome in sorted(kept.items())}, indent=1)
        try:
            with replacing(path, mode=0o600) as stream:  # complete or not there, whoever else writes it meanwhile
                stream.write(text.encode() + b"\n")
        except OSError as error:
            logger.warning("kernels: results cannot be kept in %s: %s", path, error.strerror or error)
            path = None

    def tell(name: str, outcome: Outcome) -> None:
        keep(name, outcome)
        said = "not tried" if outcome.state == "undecided" else outcome.state
        seconds = time.monotonic() - start
        logger.warning("kernels: %d of %d, %.0f s: %s is %s", len(found), len(names), seconds, name, said)

    how = f"once: results are kept in {path}" if path else "each time, because results cannot be kept"
    logger.warning("kernels: checking %d operations on %s, %s", len(names), torch.cuda.get_device_name(device), how)
    files = [str(file) for file in plugin_files(names)]
    late = {name: outcome.tries for name, outcome in known.items() if outcome.timed_out}
    with_triton = [name for name in names if plain(name) not in WITHOUT_TRITON]
    try:
        first = dict[str, Outcome]()
        if with_triton:
            try_out([Task({FIRST: MOST_SECONDS}, str(device), files)], first.__setitem__, processes=1)
        if first and first[FIRST].state != "right":
            for name in with_triton:
                keep(name, first[FIRST])
        tasks = [
            Task({name: float(MOST_SECONDS * 2 ** late.get(name, 0)) for name in group}, str(device), files)
            for group in groups([name for name in names if name not in found])
        ]
        try_out(tasks, tell, processes=how_many(device, len(tasks)))
    except (OSError, RuntimeError) as error:  # no process can be started, no file made, or the GPU does not answer
        for name in names:
            if name not in found:
                keep(name, Outcome("undecided", explained(getattr(error, "strerror", "") or str(error))))
    return found


class Task(NamedTuple):
    """What a process is to check."""

    seconds: Mapping[str, float]
    """By name, in their order, how long each may take"""
    device: str
    plugins: Sequence[str] = ()
    """Files that register cells"""

    def command(self) -> list[str]:
        """What checks all of it and for each name writes name, state and reason, a line of JSON. It may end early."""
        code = "import sys; from nmt.kernel_check.checking import work; work(sys.argv[1])"
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
            load("nmt.kernel_check.first:add_two_vectors")(device)
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


class Trial:
    """A process that does a task."""

    def __init__(self, task: Task, *, folder: Path) -> None:
        self.task, self.folder = task, Path(tempfile.mkdtemp(dir=folder))
        self.left = dict(task.seconds)
        """What it has not yet told of, as in `Task.seconds`"""
        paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with (self.folder / "output").open("wb") as output, (self.folder / "errors").open("wb") as errors:
            # In a session of its own: Ctrl-C is for us, who then end it with all that it has started.
            self.process = subprocess.Popen(
                task.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment,
                start_new_session=True,
            )  # fmt: skip
        self.since = time.monotonic()
        """When it began with what comes next"""
        self._read, self.has_told = 0, False

    def told(self) -> Iterator[tuple[str, Outcome]]:
        """What it has told since the last call."""
        with (self.folder / "output").open("rb") as stream:
            stream.seek(self._read)
            lines = stream.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                return
            self._read += len(line)
            with contextlib.suppress(ValueError, TypeError):  # what a compiler says is no outcome
                name, state, reason = json.loads(line)
                if self.left.pop(name, None) is not None:
                    self.since, self.has_told = time.monotonic(), True
                    if state == "undecided":  # a compiler's own words say more
                        reason = explained(f"{reason}\n{self._errors()}", unknown=reason)
                    yield name, Outcome(state, reason)

    def ending(self, code: int | None, seconds: float) -> Outcome:
        """Of the check at which it has ended, or has to be ended."""
        if code is None:
            return Outcome("undecided", f"it has not ended in {seconds:.0f} seconds", timed_out=True)
        if code >= 0:
            return Outcome("undecided", explained(self._errors()))
        name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
        hint = "; if no user did it, this machine has too little free memory" if -code == signal.SIGKILL else ""
        return Outcome("undecided", f"it was ended by {name}{hint}")

    def _errors(self) -> str:
        return (self.folder / "errors").read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """End it with all that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


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
                    running.append(Trial(waiting.pop(0), folder=folder))
                time.sleep(0.05)
                for trial in list(running):
                    code = trial.process.poll()
                    for name, outcome in trial.told():
                        tell(name, outcome)
                    name, seconds = next(iter(trial.left.items()), ("", math.inf))
                    if code is None and name and time.monotonic() - trial.since <= seconds:
                        continue
                    trial.kill()
                    running.remove(trial)
                    if name and (code != 0 or not trial.has_told):
                        tell(name, trial.ending(code, seconds))
                        del trial.left[name]
                    if trial.left:
                        waiting.insert(0, trial.task._replace(seconds=trial.left))
        finally:
            for trial in running:
                trial.kill()


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
