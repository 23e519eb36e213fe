"""The batches of an epoch: pools of pairs taken from the order, sorted by length, cut, shuffled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt.data.permutation import Permutation
from nmt.data.sampling import PairOrder, Part, Rows

LOOKED_AT = 64
"""Pools that an estimate looks at; an epoch of no more is counted exactly."""


class HasLengths(Protocol):
    """What the sampler needs of a corpus."""

    @property
    def source_lengths(self) -> NDArray[np.int32]: ...

    @property
    def target_lengths(self) -> NDArray[np.int32]: ...

    @property
    def parts(self) -> Sequence[Part]: ...


class Estimate(NamedTuple):
    """What an epoch is like."""

    batches: int
    padding_share: float
    """Share of the tokens of its batches, both sides together, that are padding; in 0..1."""
    exact: bool

    def __str__(self) -> str:
        """The batches, for people."""
        return f"{'' if self.exact else 'about '}{self.batches:,}"


class BatchSampler:
    """Cuts a corpus into batches, anew for each epoch.

    A batch of n pairs holds at most `batch_sentences` pairs, and costs n times the longest source
    or target among them, EOS and padding counted: at most `batch_tokens`. A single pair that costs
    more is a batch of its own, so no pair of the order is lost. Either limit may be None, not both.

    The order of the pairs (see `PairOrder`) is taken in pools of about `pool_batches` batches; a
    pool is sorted by length and cut, and its batches are shuffled. A pool depends on nothing but
    the lengths of its pairs, the settings, `seed`, the epoch and its number, and is made without
    the pools before it. So (epoch, pool, batch) is a position to resume from, at any place at once.
    """

    def __init__(
        self,
        corpus: HasLengths,
        *,
        batch_tokens: int | None = None,
        batch_sentences: int | None = None,
        pool_batches: int = 256,
        seed: int = 1,
        shares: Sequence[float] | None = None,
    ) -> None:
        """`shares`: of each part of the corpus in an epoch, see `sampling_shares`; None is each pair once."""
        if batch_tokens is None and batch_sentences is None:
            raise ValueError("a batch needs a limit: batch_tokens or batch_sentences")
        self._source = corpus.source_lengths
        self._target = corpus.target_lengths
        self._batch_tokens = batch_tokens
        self._batch_sentences = batch_sentences
        self._seed = seed
        self.order = PairOrder(corpus.parts, shares=shares, seed=seed)
        pairs = pool_batches * self._pairs_in_batch(_mean_cost(corpus.parts, shares))
        self._pool_units = max(1, pairs // self.order.unit_pairs)
        self.pools = -(-self.order.units // self._pool_units)
        """Pools in an epoch."""

    def _pairs_in_batch(self, mean_cost: float) -> int:
        """Pairs of an average batch."""
        limits = [] if self._batch_sentences is None else [self._batch_sentences]
        if self._batch_tokens is not None:
            limits.append(max(1, int(self._batch_tokens / mean_cost)))
        return min(limits)

    def pool(self, epoch: int, number: int) -> list[Rows]:
        """The batches of pool `number` of epoch `epoch`, both counted from 0, in their order."""
        batches = self._sorted_batches(epoch, number)
        shuffled = Permutation(len(batches), self._seed, "batches", epoch, number)(np.arange(len(batches)))
        return [batches[i] for i in shuffled]

    def epoch(self, epoch: int) -> Iterator[Rows]:
        """All batches of an epoch, in their order."""
        for number in range(self.pools):
            yield from self.pool(epoch, number)

    def _sorted_batches(self, epoch: int, number: int) -> list[Rows]:
        start = number * self._pool_units
        rows = self.order.rows(epoch, start, min(start + self._pool_units, self.order.units))
        source, target = self._source[rows], self._target[rows]
        cost = np.maximum(source, target)
        # From a longer source over equal lengths to a longer target, then back in the next cost: so
        # neighbours are alike on both sides, also where one cost ends and the next begins.
        difference = (target - source) * (1 - 2 * (cost % 2))
        by_length = np.lexsort((difference, cost))  # the last key counts most
        return np.split(rows[by_length], self._cut(cost[by_length])[1:-1])

    def _cut(self, cost: NDArray[np.int32]) -> list[int]:
        """Boundaries [batches + 1] of the batches of pairs with these costs [pairs], ascending."""
        starts, pairs = [0], len(cost)
        while starts[-1] < pairs:
            start = starts[-1]
            end = pairs if self._batch_sentences is None else min(pairs, start + self._batch_sentences)
            if self._batch_tokens is not None:
                # Costs do not fall within a pool, so the last pair of a batch is its most expensive.
                window = cost[start : min(end, start + self._batch_tokens // int(cost[start]))]
                fits = window.astype(np.int64) * np.arange(1, len(window) + 1) <= self._batch_tokens
                end = start + max(1, len(window) if fits.all() else int(fits.argmin()))
            starts.append(end)
        return starts

    @cached_property
    def estimate(self) -> Estimate:
        """Batches and padding of the first epoch, from some of its pools if it has many; later epochs differ little."""
        if self.pools <= LOOKED_AT:
            looked_at = list(range(self.pools))
        else:  # spread evenly; the last pool, which may be smaller, is not among them
            looked_at = [i * (self.pools - 1) // LOOKED_AT for i in range(LOOKED_AT)]
        batches = used = slots = 0
        for number in looked_at:
            found = self._sorted_batches(0, number)
            batches += len(found)
            for lengths in (self._source, self._target):
                for rows in found:
                    side = lengths[rows]
                    used += int(side.sum())
                    slots += len(side) * int(side.max())
        total = round(batches * self.pools / len(looked_at))
        return Estimate(total, 1 - used / slots if slots else 0.0, exact=len(looked_at) == self.pools)


def _mean_cost(parts: Sequence[Part], shares: Sequence[float] | None) -> float:
    """Mean length of the longer side of the pairs of an epoch."""
    if shares is None:
        return max(1.0, sum(part.cost for part in parts) / max(1, sum(part.pairs for part in parts)))
    return sum(share * part.cost / part.pairs for share, part in zip(shares, parts, strict=True))
