"""Which sentences are whose: a pure function of the update, or of the lines, and the number of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

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
