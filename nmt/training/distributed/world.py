"""All processes of a run, from the view of one of them; this module covers the usual case of a single process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from nmt.errors import NmtError

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
