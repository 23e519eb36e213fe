"""What has been found out about kernels on a kind of GPU, kept in a file, and finding out what is missing."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import torch

from nmt.compiling import BuildError, is_ours, own_directory
from nmt.files import replacing
from nmt.kernel_check import trials
from nmt.kernel_check.needs import WITHOUT_TRITON, groups, plain, plugin_files
from nmt.kernel_check.trials import FIRST, PACKAGE, Outcome, Task, explained
from nmt.ops.dispatch import triton_version

_PARTS: Final = ("ops", "cells", "models", "kernel_check")
"""What the results depend on."""

_DRIVER: Final = Path("/proc/driver/nvidia/version")


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


def add_to_record(path: Path, name: str, outcome: Outcome) -> None:
    """Keep one more; the file is complete or not there, whoever else writes it at the same time."""
    kept = {**read_record(path), name: outcome}
    with replacing(path, mode=0o600) as stream:
        text = json.dumps({name: outcome._asdict() for name, outcome in sorted(kept.items())}, indent=1)
        stream.write(text.encode() + b"\n")


@contextlib.contextmanager
def alone(path: Path | None) -> Iterator[None]:
    """Wait for other processes that find out the same, of which one is enough."""
    if path is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # of a directory that cannot be written to: all of them find out
            fcntl.flock(stack.enter_context(path.with_suffix(".lock").open("w")), fcntl.LOCK_EX)
        yield


logger = logging.getLogger(__name__)

MOST_SECONDS: Final = 300
"""For one check at the first try; twice as many at each further one. Most of the time kernels are compiled, which are
then in Triton's cache."""


def known_of(names: Sequence[str], path: Path | None) -> dict[str, Outcome]:
    """Known results of these checks; an operation that is right with gradients is right without them."""
    kept = read_record(path)
    whole = {name: kept[plain(name)] for name in names if plain(name) in kept and kept[plain(name)].state == "right"}
    return {name: outcome for name, outcome in {**kept, **whole}.items() if name in names}


def find_out(
    names: Sequence[str], device: torch.device, *, check: bool = True, again: bool = False
) -> dict[str, Outcome]:
    """What these checks find on this GPU: made where that is not known, unless `check` is false; `again` all."""
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    path, began = record_file(device, plugin_files(names)), time.time()
    if not check:
        return known_of(names, path)
    with alone(path):
        known = known_of(names, path)
        # Another process may just have failed to run the same check.
        settled = {name for name, outcome in known.items() if outcome.is_final or outcome.when >= began}
        missing = [name for name in names if again or name not in settled]
        if missing:
            known |= _Checking(missing, {} if again else known, path).run(device)
    return {name: known[name] for name in names}


class _Checking:
    """Runs checks; each result is kept at once and reported in a line."""

    def __init__(self, names: Sequence[str], known: Mapping[str, Outcome], path: Path | None) -> None:
        self._names, self._known, self._path, self._start = names, known, path, time.monotonic()
        self._found = dict[str, Outcome]()
        late = {name: outcome.tries for name, outcome in known.items() if outcome.timed_out}
        self._seconds = {name: float(MOST_SECONDS * 2 ** late.get(name, 0)) for name in names}

    def run(self, device: torch.device) -> dict[str, Outcome]:
        """Make them, the smallest kernel first."""
        kept = f"once: results are kept in {self._path}" if self._path else "each time, because results cannot be kept"
        gpu = torch.cuda.get_device_name(device)
        logger.warning("kernels: checking %d operations on %s, %s", len(self._names), gpu, kept)
        files = [str(path) for path in plugin_files(self._names)]
        with_triton = [name for name in self._names if plain(name) not in WITHOUT_TRITON]
        try:
            first = dict[str, Outcome]()
            if with_triton:
                trials.try_out([Task({FIRST: MOST_SECONDS}, str(device), files)], first.__setitem__, processes=1)
            if first and first[FIRST].state != "right":
                for name in with_triton:
                    self._keep(name, first[FIRST])
            left = groups([name for name in self._names if name not in self._found])
            tasks = [Task({name: self._seconds[name] for name in group}, str(device), files) for group in left]
            trials.try_out(tasks, self._tell, processes=trials.how_many(device, len(tasks)))
        except (OSError, RuntimeError) as error:  # no process can be started, no file made, or the GPU does not answer
            for name in self._names:
                if name not in self._found:
                    self._keep(name, Outcome("undecided", explained(getattr(error, "strerror", "") or str(error))))
        return self._found

    def _tell(self, name: str, outcome: Outcome) -> None:
        self._keep(name, outcome)
        said = "not tried" if outcome.state == "undecided" else outcome.state
        seconds = time.monotonic() - self._start
        logger.warning("kernels: %d of %d, %.0f s: %s is %s", len(self._found), len(self._names), seconds, name, said)

    def _keep(self, name: str, outcome: Outcome) -> None:
        before = self._known.get(name)
        tries = before.tries + 1 if before and before.timed_out == outcome.timed_out else 1
        self._found[name] = outcome._replace(tries=tries, when=time.time())
        try:
            if self._path is not None:
                add_to_record(self._path, name, self._found[name])
        except OSError as error:
            logger.warning("kernels: results cannot be kept in %s: %s", self._path, error.strerror or error)
            self._path = None


def why(outcome: Outcome) -> str:
    """The reason why something could not be tried, and when it is again."""
    tries = "" if outcome.tries == 1 else f", {outcome.tries} times"
    again = "only python -m nmt.kernel_check tries again" if outcome.is_final else "tried again at the next start"
    return f"{outcome.reason}{tries} ({again})"
