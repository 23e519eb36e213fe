"""The batches of an epoch: pools of pairs taken from the order, sorted by length, cut, shuffled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt.data.permutation import Permutation
from nmt.data.resegmentation import DrawnPairs, Resegmentation
from nmt.data.sampling import PairOrder, Part, Rows

LOOKED_AT = 64
"""Pools that an estimate looks at; an epoch of no more is counted exactly."""
LOOKED_AT_ANEW = 4
"""The same where text is split anew, which takes time."""


class HasLengths(Protocol):
    """The part of a corpus that the sampler needs."""

    @property
    def source_lengths(self) -> NDArray[np.int32]: ...

    @property
    def target_lengths(self) -> NDArray[np.int32]: ...

    @property
    def parts(self) -> Sequence[Part]: ...


class Pool(NamedTuple):
    """Consecutive batches of an epoch."""

    batches: list[Rows]
    drawn: DrawnPairs | None
    """Their pairs, if they are split anew in each epoch; None: they are as the corpus has them."""


class Estimate(NamedTuple):
    """Properties of an epoch."""

    batches: int
    padding_share: float
    """Share of the tokens of its batches, both sides together, that are padding; in 0..1."""
    exact: bool
    growth: float | None = None
    """Ratio of the tokens after splitting again to those of the corpus; None: not split again."""
    too_long: int = 0
    """Sentences of the pairs looked at that are not split anew, as they would be too long."""

    def __str__(self) -> str:
        """The batches, for people."""
        return f"{'' if self.exact else 'about '}{self.batches:,}"


class BatchSampler:
    """Cuts a corpus into batches, differently for each epoch.

    A batch of n pairs holds at most `batch_sentences` pairs, and costs n times the longest source
    or target among them, EOS and padding counted: at most `batch_tokens`. A single pair that costs
    more is a batch of its own, so no pair of the order is lost. Either limit may be None, not both.

    The order of the pairs (see `PairOrder`) is taken in pools of about `pool_batches` batches; a
    pool is sorted by length and cut, and its batches are shuffled. A pool depends on nothing but
    the lengths of its pairs, the settings, `seed`, the epoch and its number, and is made without
    the pools before it. So (epoch, pool, batch) is a position to resume from, at any place at once.
    If pairs are split again in each epoch, their lengths in that epoch count.
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
        anew: Resegmentation | None = None,
    ) -> None:
        """`shares`: of each part of the corpus in an epoch, see `sampling_shares`; None is each pair once.

        `anew`: how the pairs are split anew in each epoch; None, they are not.
        """
        if batch_tokens is None and batch_sentences is None:
            raise ValueError("a batch needs a limit: batch_tokens or batch_sentences")
        self._source = corpus.source_lengths
        self._target = corpus.target_lengths
        self._batch_tokens = batch_tokens
        self._batch_sentences = batch_sentences
        self._seed = seed
        self._anew = anew
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

    def pool(self, epoch: int, number: int) -> Pool:
        """Pool `number` of epoch `epoch`, both counted from 0, its batches in their order."""
        batches, drawn = self._sorted(epoch, number)
        shuffled = Permutation(len(batches), self._seed, "batches", epoch, number)(np.arange(len(batches)))
        return Pool([batches[i] for i in shuffled], drawn)

    def epoch(self, epoch: int) -> Iterator[Rows]:
        """All batches of an epoch, in their order."""
        for number in range(self.pools):
            yield from self.pool(epoch, number).batches

    def _sorted(self, epoch: int, number: int) -> Pool:
        start = number * self._pool_units
        rows = self.order.rows(epoch, start, min(start + self._pool_units, self.order.units))
        drawn = None if self._anew is None else self._anew(epoch, rows)
        source, target = self._lengths(rows, drawn)
        cost = np.maximum(source, target)
        # From a longer source over equal lengths to a longer target, then back in the next cost: so
        # neighbours are alike on both sides, also where one cost ends and the next begins.
        difference = (target - source) * (1 - 2 * (cost % 2))
        by_length = np.lexsort((difference, cost))  # the last key counts most
        return Pool(np.split(rows[by_length], self._cut(cost[by_length])[1:-1]), drawn)

    def _lengths(self, rows: Rows, drawn: DrawnPairs | None) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return (self._source[rows], self._target[rows]) if drawn is None else drawn.lengths(rows)

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
        most = LOOKED_AT if self._anew is None else LOOKED_AT_ANEW
        if self.pools <= most:
            looked_at = list(range(self.pools))
        else:  # spread evenly; the last pool, which may be smaller, is not among them
            looked_at = [i * (self.pools - 1) // most for i in range(most)]
        batches = used = slots = before = too_long = 0
        for number in looked_at:
            found, drawn = self._sorted(0, number)
            batches += len(found)
            for rows in found:
                for side, own in zip(self._lengths(rows, drawn), (self._source, self._target), strict=True):
                    used += int(side.sum())
                    slots += len(side) * int(side.max())
                    before += int(own[rows].sum())
                too_long += 0 if drawn is None else drawn.too_long(rows)
        total = round(batches * self.pools / len(looked_at))
        padding = 1 - used / slots if slots else 0.0
        growth = None if self._anew is None else used / before
        return Estimate(total, padding, exact=len(looked_at) == self.pools, growth=growth, too_long=too_long)


def _mean_cost(parts: Sequence[Part], shares: Sequence[float] | None) -> float:
    """Mean length of the longer side of the pairs of an epoch."""
    if shares is None:
        return max(1.0, sum(part.cost for part in parts) / max(1, sum(part.pairs for part in parts)))
    return sum(share * part.cost / part.pairs for share, part in zip(shares, parts, strict=True))
