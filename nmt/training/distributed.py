"""Several processes at one work: what each does, and how they agree; a single process is the base class."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.errors import ConfigError, NmtError, refused
from nmt.interop.device import choose_device
from nmt.registry import WORLDS

T = TypeVar("T")


class RankError(NmtError):
    """An error of one of several processes, or the resulting message of the others."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class World:
    """The processes that train together. Each has a rank; all of them call the same methods in the same order.

    This class is the world of a single process, in which nothing is exchanged; `ProcessGroup` is the world of several.
    """

    rank: int = 0
    size: int = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device
        """Where this process computes."""

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the only one that writes files."""
        return self.rank == 0

    def add_up(self, weights: Sequence[Tensor], sums: Tensor) -> list[float]:
        """Replace the gradient of each weight by its sum over all ranks; return their `sums` [n] added up.

        A weight without a gradient counts as zero, and stays without one where no rank has one.
        """
        return list(map(float, sums.tolist()))

    def largest(self, *values: float) -> tuple[float, ...]:
        """The largest of each value over all ranks."""
        return values

    def total(self, value: float) -> float:
        """The sum of this value over all ranks."""
        return value

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in their order, on all ranks. A value is what JSON can hold."""
        return [value]

    def from_main(self, value: T) -> T:
        """The value of rank 0; the values of the others are ignored."""
        return value

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Run the block on rank 0, then on the others, which wait as long as rank 0 shows signs of life."""
        yield

    def ask_to_stop(self) -> None:
        """Let the others see in `stop_is_asked` that this rank wants to stop; they need not be waiting for it."""

    def stop_is_asked(self) -> bool:
        """Whether another rank has called `ask_to_stop`; cheap enough to ask often."""
        return False

    def __str__(self) -> str:
        return "1 process"


def check_same(world: World, what: str, value: Callable[[], str]) -> None:
    """Raise RankError in all processes unless all have the same `value()`; a single one does not compute it."""
    if world.size == 1:
        return
    digests = world.gather(hashlib.sha256(value().encode()).hexdigest())
    others = [str(rank) for rank, digest in enumerate(digests) if digest != digests[0]]
    if others:
        raise RankError(f"not all processes have the same {what}: rank 0 differs from {', '.join(others)}")


SNAP = 0.25
"""A cut that falls within this part of a share from the end of a batch moves there."""


class Part(NamedTuple):
    """Rows first..end-1 of one batch of an update."""

    batch: int
    first: int
    end: int


@dataclass(frozen=True)
class Share:
    """The part of one of `size` processes in each update."""

    rank: int = 0
    size: int = 1

    def parts(self, costs: Sequence[NDArray[Any]]) -> list[Part]:
        """This process's part of batches whose sentences cost `costs` (tokens, say; one array a batch).

        The sentences of all batches in a row are cut into `size` stretches of nearly equal cost, so that each
        process has a few rectangles and every sentence is in exactly one. A recurrent network takes as long for
        one sentence as for some dozens, so a cut moves to a near end of a batch rather than leave a sliver. With
        fewer sentences than processes some have none.
        """
        if self.size == 1:
            return [Part(batch, 0, len(rows)) for batch, rows in enumerate(costs)]
        ends = np.cumsum([0, *map(len, costs)])  # [batches + 1] where each batch begins in the row of all sentences
        done = np.concatenate([[0], np.cumsum(np.concatenate(costs), dtype=np.int64)])  # [sentences + 1]
        first, end = (_cut(done, ends, whose, self.size) for whose in (self.rank, self.rank + 1))
        parts = [
            Part(batch, max(0, first - ends[batch]), min(end, ends[batch + 1]) - ends[batch])
            for batch in range(len(costs))
        ]
        return [Part(*map(int, part)) for part in parts if part.first < part.end]

    def random_seed(self, seed: int, *position: int) -> int | None:
        """Seed of this process's generators in the update at `position` of a run with `seed`.

        nmt itself does not draw from them in an update: dropout masks depend on the position in the data. A plugin's
        unit or model may, and then its numbers depend on the number of processes. None for a single process, whose
        generators simply continue. With several, each update starts from its own seed: resuming needs no generator
        state, so checkpoints do not depend on the number of processes.
        """
        if self.size == 1:
            return None
        sequence = np.random.SeedSequence([seed, self.rank, *position])
        return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def interleave(parts: Sequence[Sequence[T]]) -> list[T]:
    """Undo items[0::n], items[1::n], ..., items[n-1::n]."""
    return [part[i] for i in range(max(map(len, parts))) for part in parts if i < len(part)]


def _cut(done: NDArray[np.int64], ends: NDArray[Any], whose: int, size: int) -> int:
    """Where the stretch of process `whose` begins: the sentence before which `done`, the cost so far, is nearest."""
    share = float(done[-1]) / size
    at_ends = done[ends]
    end = int(np.abs(at_ends - whose * share).argmin())
    if abs(at_ends[end] - whose * share) <= SNAP * share:
        return int(ends[end])
    return int(np.abs(done - whose * share).argmin())


NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets in each process."""
TIMEOUT = "NMT_TIMEOUT"
"""Environment variable with the seconds after which a silent process counts as lost."""
DEFAULT_TIMEOUT = 600.0
LONGEST_TIMEOUT = 1e6
"""Eleven days; torch counts nanoseconds in 64 bits."""
_MOST_DIGITS = 9


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

        Raises ConfigError where they are incomplete or no numbers.
        """
        if environment.get("WORLD_SIZE", "1") == "1":
            return None
        missing = [name for name in NEEDED if name not in environment]
        if missing:
            raise ConfigError(f"WORLD_SIZE is set, but not {', '.join(missing)}; start several processes with torchrun")
        problem, numbers, timeout = "in the environment is not allowed", [], -1.0
        for name in NEEDED[:3]:
            text = environment[name]
            if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
                raise ConfigError(refused(name, text, "a whole number of 0 or more", problem=problem))
            numbers.append(int(text))
        text = environment.get(TIMEOUT, str(DEFAULT_TIMEOUT))
        with suppress(ValueError):
            timeout = float(text)
        if not 0 < timeout <= LONGEST_TIMEOUT:
            wanted = f"a number of seconds above 0 and at most {LONGEST_TIMEOUT:g}"
            raise ConfigError(refused(TIMEOUT, text, wanted, problem=problem))
        rank, size, local_rank = numbers
        return cls(rank, size, local_rank, timeout)


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
    gpus, number = torch.cuda.device_count(), launch.local_rank
    own = choose_device(device, index=min(number, max(0, gpus - 1)))
    if own.type == "cuda":
        if number >= gpus:
            raise ConfigError(
                f"rank {launch.rank}: process {number + 1} of this machine, which has {gpus} GPUs; start one process "
                "for each (--nproc-per-node) or use --device cpu"
            )
        torch.cuda.set_device(number)
        own = torch.device("cuda", number)
    with WORLDS.get("torchrun")(launch, own) as world:  # of which a process that trains alone imports nothing
        yield world
