"""How a process finds out whether it trains alone, meets the others if not, and ends together with them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from nmt.errors import ConfigError, NmtError, refused
from nmt.interop.device import choose_device
from nmt.plugin_errors import plugin_error
from nmt.training.distributed.world import RankError, World

if TYPE_CHECKING:
    from nmt.training.distributed.process_group import ProcessGroup

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets in each process."""
TIMEOUT = "NMT_TIMEOUT"
"""Environment variable with the seconds after which a silent process counts as lost."""
DEFAULT_TIMEOUT = 600.0
LONGEST_TIMEOUT = 1e6
"""Eleven days; torch counts nanoseconds in 64 bits."""
_MOST_DIGITS = 9
_IN_ENVIRONMENT = "in the environment is not allowed"
PATIENCE = 3.0
"""Seconds that a process waits for the reason of a failure elsewhere; rank 0 keeps the store that long."""
LAST_RESORT = 30
"""Seconds after which the kernel ends a process that has failed but cannot leave torch.distributed."""


@dataclass(frozen=True)
class Launch:
    """The launcher's settings for this process."""

    rank: int
    size: int
    local_rank: int
    timeout: float

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Launch | None:
        """From environment variables; None for a process that trains alone.

        Raises:
            ConfigError: they are incomplete or no numbers.
        """
        if environment.get("WORLD_SIZE", "1") == "1":
            return None
        missing = [name for name in NEEDED if name not in environment]
        if missing:
            raise ConfigError(f"WORLD_SIZE is set, but not {', '.join(missing)}; start several processes with torchrun")
        rank, size, local_rank = (_number(environment, name) for name in NEEDED[:3])
        return cls(rank, size, local_rank, _seconds(environment))


@contextmanager
def connected(device: str) -> Iterator[World]:
    """The world this process belongs to, while the block runs; `device` is auto, cpu or cuda.

    Under torchrun the block begins when all processes have met and ends when all have ended it. When it raises an
    error in one of them the others end as well, with one line that names the first.

    Raises:
        ConfigError: launched in a way that cannot work, or there is no such device.
        NmtError: the others were not met, or one was lost.
    """
    launch = Launch.read(os.environ)
    if launch is None:
        yield World(choose_device(device))
        return
    world = _meet(launch, _own_device(device, launch))
    try:
        yield world
        world.gather(None)  # the first process to end must not end the store
    except Exception as error:
        message = _last_words(world, error)
        if message is None:
            raise
        raise message from error
    except BaseException:  # a signal, which has its own exit code; it may have reached this process alone
        _publish(world, "interrupted", exit_code=1)
        raise
    world.leave()


def _own_device(name: str, launch: Launch) -> torch.device:
    device = choose_device(name, index=min(launch.local_rank, max(0, torch.cuda.device_count() - 1)))
    if device.type != "cuda":
        return device
    if launch.local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"rank {launch.rank}: process {launch.local_rank + 1} of this machine, which has "
            f"{torch.cuda.device_count()} GPUs; start one process for each (--nproc-per-node) or use --device cpu"
        )
    torch.cuda.set_device(launch.local_rank)
    return torch.device("cuda", launch.local_rank)


def _meet(launch: Launch, device: torch.device) -> ProcessGroup:
    # Imported here, so that a process that trains alone has nothing of it.
    from torch.distributed.rendezvous import rendezvous

    from nmt.training.distributed.process_group import LostContactError, ProcessGroup, reason
    from nmt.training.distributed.store import fresh_part

    # Otherwise a lost GPU would end this process from a thread of torch, without an error message.
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=timedelta(seconds=launch.timeout))))
        store = fresh_part(store, rank=rank, size=size, timeout=launch.timeout)
        return ProcessGroup(store, rank=rank, size=size, device=device, timeout=launch.timeout)
    except (LostContactError, RuntimeError, OSError, ValueError) as error:
        place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        message = (
            f"rank {launch.rank} of {launch.size}: could not connect to the other processes at {place}: {reason(error)}"
        )
        raise RankError(message, exit_code=1) from error


def _last_words(world: ProcessGroup, error: Exception) -> RankError | None:
    """The message of this process instead of `error`, or None; the first process to fail informs the others."""
    from nmt.training.distributed.process_group import LostContactError

    with suppress(ValueError):  # signals can only be handled in the main thread
        # The launcher ends the others as soon as one has ended; they still have to print the reason.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(LAST_RESORT)
    me = f"rank {world.rank} of {world.size}"
    if isinstance(error, LostContactError):
        first = _first_failure(world, patience=PATIENCE)
    else:
        text = plugin_error(error) if not isinstance(error, NmtError) else None
        text = text or _in_one_line(str(error)) or type(error).__name__
        first = _publish(world, text, exit_code=getattr(error, "exit_code", 1))
    if first is not None:
        _stay_for_the_others(world)
    if first is not None and first["rank"] != world.rank:
        message = f"{me}: ended because rank {first['rank']} has failed: {first['message']}"
        return RankError(message, exit_code=first["exit_code"])
    return RankError(f"{me}: {error}", exit_code=error.exit_code) if isinstance(error, NmtError) else None


def _in_one_line(text: str) -> str:
    """The first line and, where mistakes are listed below it, the first of them and how many more there are."""
    first, *listed = text.strip().split("\n")
    if not listed:
        return first
    return f"{first} {listed[0].strip()}" + (f" (and {len(listed) - 1} more)" if len(listed) > 1 else "")


def _stay_for_the_others(world: ProcessGroup) -> None:
    """Let the others notice that something has failed, and keep the store, which may be ours, until they know what."""
    from nmt.training.distributed.process_group import HEARD

    world.leave()  # closes the connections on which they wait
    deadline = time.monotonic() + PATIENCE
    with suppress(RuntimeError):
        heard = world.store.add(HEARD, 1)
        while world.is_main and heard < world.size and time.monotonic() < deadline:
            time.sleep(0.05)
            heard = world.store.add(HEARD, 0)


def _publish(world: ProcessGroup, message: str, *, exit_code: int) -> dict[str, Any] | None:
    """Record the failure in the store unless another rank was faster; return the record, None if unknown."""
    from nmt.training.distributed.process_group import FAILURE

    record = {"rank": world.rank, "message": message, "exit_code": exit_code}
    try:
        return dict(json.loads(world.store.compare_set(FAILURE, "", json.dumps(record))))
    except (RuntimeError, ValueError):
        return None


def _first_failure(world: ProcessGroup, *, patience: float) -> dict[str, Any] | None:
    """The failure that another rank recorded in the store; None if it died without a record."""
    from nmt.training.distributed.process_group import FAILURE

    deadline = time.monotonic() + patience
    with suppress(RuntimeError, ValueError):
        while time.monotonic() < deadline:
            if world.store.check([FAILURE]):
                return dict(json.loads(world.store.get(FAILURE)))
            time.sleep(0.1)
    return None


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        raise ConfigError(refused(name, text, "a whole number of 0 or more", problem=_IN_ENVIRONMENT))
    return int(text)


def _seconds(environment: Mapping[str, str]) -> float:
    text = environment.get(TIMEOUT, str(DEFAULT_TIMEOUT))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= LONGEST_TIMEOUT:
        wanted = f"a number of seconds above 0 and at most {LONGEST_TIMEOUT:g}"
        raise ConfigError(refused(TIMEOUT, text, wanted, problem=_IN_ENVIRONMENT))
    return value
