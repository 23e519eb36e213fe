"""The pairs of an epoch and their order: a pure function of lengths of corpora, shares, seed and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.permutation import Permutation
from nmt.errors import DataError

Rows = NDArray[np.int64]
"""Numbers of sentence pairs in a corpus."""

RUN = 64
"""Consecutive pairs that stay together in the order of a large corpus."""
LARGE = 1 << 22
"""Pairs of a large corpus, of which not everything stays in memory: pairs taken singly would each be a disk access."""


class Part(NamedTuple):
    """The pairs of one prefix of data.train, which follow those of the prefix before it."""

    pairs: int
    cost: int
    """Sum over its pairs of the longer side's length, end symbol counted."""


def sampling_shares(
    sizes: Sequence[int], names: Sequence[str], *, temperature: float = 1.0, weights: Sequence[float] | None = None
) -> list[float]:
    """The share of each corpus in an epoch.

    p_i ~ weights_i, or p_i ~ n_i ** (1 / temperature) with n_i the number of its pairs. Raises DataError for a corpus
    without pairs, which cannot be sampled.
    """
    for size, name in zip(sizes, names, strict=True):
        if size == 0:
            raise DataError(f"data.train: no pair of {name} was kept, so it cannot be sampled; remove it")
    # Relative to the largest, so that no power overflows.
    raw = np.asarray(weights, float) if weights else (np.asarray(sizes, float) / max(sizes)) ** (1 / temperature)
    return [float(share) for share in raw / raw.sum()]


class PairOrder:
    """The order of the pairs of every epoch.

    An epoch has as many pairs as all parts together. Without shares that is each pair once. With
    them, a part is an endless sequence of passes over its pairs, each in its own order, and every epoch takes the next
    piece of it, whose length is its share: a part may occur several times in an epoch or take several epochs, but no
    pair of it is ever more than one use ahead of another.

    In a corpus of LARGE pairs or more, runs of RUN consecutive pairs stay together, so that what
    a disk reads at once is used at once.
    """

    def __init__(self, parts: Sequence[Part], *, shares: Sequence[float] | None = None, seed: int = 1) -> None:
        pairs = np.array([part.pairs for part in parts] if shares else [sum(part.pairs for part in parts)], np.int64)
        self._run = RUN if pairs.sum() >= LARGE else 1
        self._ends = np.cumsum(pairs)  # rows
        self._begins = self._ends - pairs
        self._units = -(-pairs // self._run)  # a unit is a run; [parts]
        taken = self._units
        if shares is not None:
            taken = np.maximum(1, np.rint(np.asarray(shares) * self._units.sum()).astype(np.int64))
        self._taken = taken  # units of each part in an epoch
        self._first = np.cumsum(taken) - taken
        self._seed = seed
        self.shares = shares

    @property
    def units(self) -> int:
        """Units in an epoch; each is `unit_pairs` pairs, the last of a part perhaps fewer."""
        return int(self._taken.sum())

    @property
    def unit_pairs(self) -> int:
        """Pairs that stay together."""
        return self._run

    def uses(self) -> list[float]:
        """How often an epoch takes each pair of every part, on average."""
        return [float(taken / units) for taken, units in zip(self._taken, self._units, strict=True)]

    def rows(self, epoch: int, start: int, end: int) -> Rows:
        """The rows of units `start` to `end` (exclusive) of epoch `epoch`, counted from 0."""
        place = Permutation(self.units, self._seed, "epoch", epoch)(np.arange(start, end))
        part = np.searchsorted(self._first, place, side="right") - 1
        passes, unit = np.divmod(epoch * self._taken[part] + place - self._first[part], self._units[part])
        for chosen, number in {(int(i), int(k)) for i, k in zip(part, passes, strict=True)}:
            here = (part == chosen) & (passes == number)
            unit[here] = Permutation(int(self._units[chosen]), self._seed, "pass", chosen, number)(unit[here])
        first = self._begins[part] + unit * self._run
        rows = first[:, None] + np.arange(self._run)
        kept: Rows = rows[rows < self._ends[part][:, None]]
        return kept
