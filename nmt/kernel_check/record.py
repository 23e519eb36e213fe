"""What has been found out about kernels on a kind of GPU, kept in a file, since it takes long to find out."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import torch

from nmt.compiling import BuildError, is_ours, own_directory
from nmt.files import replacing
from nmt.ops.dispatch import triton_version

PACKAGE: Final = Path(__file__).parents[1]
_PARTS: Final = ("ops", "cells", "models", "kernel_check")
"""What the results depend on."""
_DRIVER: Final = Path("/proc/driver/nvidia/version")


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


def read(path: Path | None) -> dict[str, Outcome]:
    """The outcomes in a file by name; none where there is no such file of ours or it is damaged."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8")) if path and is_ours(path) else {}
        found = {str(name): Outcome(**outcome) for name, outcome in kept.items()}
        return {name: outcome for name, outcome in found.items() if outcome.state in ("right", "wrong", "undecided")}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def add(path: Path, name: str, outcome: Outcome) -> None:
    """Keep one more; the file is complete or not there, whoever else writes it at the same time."""
    kept = {**read(path), name: outcome}
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
