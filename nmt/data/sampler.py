"""The pairs of an epoch, their order, subwords and batches: a pure function of lengths, settings, seed and epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import SIDES, Corpus, FlatSentences, Part, Rows
from nmt.data.tokenizer import Sides
from nmt.errors import DataError
from nmt.ops.subwords import draw

LOOKED_AT = 64
"""Pools that an estimate looks at; an epoch of no more is counted exactly."""
LOOKED_AT_ANEW = 4
"""The same where text is split anew, which takes time."""
RUN = 64
"""Consecutive pairs that stay together in the order of a large corpus."""
LARGE = 1 << 22
"""Pairs of a large corpus, of which not everything stays in memory: pairs taken singly would each be a disk access."""
Places = NDArray[np.int64]

_ROUNDS = 8


class Permutation:
    """A one-to-one map of 0..size-1 onto itself that depends only on its key, the same on every machine.

    A generalised Feistel network: a number is written as (left, right) with left below a and right
    below b, where a * b is hardly larger than `size`, and each round adds a hash of one half to the
    other. Results that are too large are permuted again ("cycle walking", Black and Rogaway,
    Ciphers with arbitrary finite domains, CT-RSA 2002). It is not cryptographically secure.
    """

    def __init__(self, size: int, *key: int | str) -> None:
        """`key`: any numbers and words, such as a seed, what the permutation is for, and the epoch."""
        if not 0 < size < 2**62:
            raise ValueError(f"size {size} must be positive")
        self.size = size
        rows = int(np.ceil(np.sqrt(float(size))))
        self._rows, self._columns = np.uint64(rows), np.uint64(-(-size // rows))
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = np.frombuffer(digest, "<u8").astype(np.uint64)

    def __call__(self, places: Places) -> Places:
        """Where each of `places`, any array of numbers in 0..size-1, goes."""
        found = self._once(np.asarray(places).astype(np.uint64))
        outside = np.flatnonzero(found >= self.size)
        while len(outside):
            found[outside] = self._once(found[outside])
            outside = outside[found[outside] >= self.size]
        return found.astype(np.int64)

    def _once(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = np.divmod(numbers, self._columns)
        for key in self._keys.reshape(-1, 2):
            left = (left + mixed(right ^ key[0]) % self._rows) % self._rows
            right = (right + mixed(left ^ key[1]) % self._columns) % self._columns
        found: NDArray[np.uint64] = left * self._columns + right
        return found


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of each number: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: NDArray[np.uint64] = numbers ^ (numbers >> np.uint64(31))
    return found


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
        self.unit_pairs = RUN if pairs.sum() >= LARGE else 1
        """Pairs that stay together: a unit, the last of a part perhaps of fewer."""
        self._ends = np.cumsum(pairs)  # rows
        self._begins = self._ends - pairs
        self._units = -(-pairs // self.unit_pairs)  # [parts]
        taken = self._units
        if shares is not None:
            taken = np.maximum(1, np.rint(np.asarray(shares) * self._units.sum()).astype(np.int64))
        self._taken = taken  # units of each part in an epoch
        self.units = int(taken.sum())
        """Units in an epoch."""
        self._first = np.cumsum(taken) - taken
        self._seed = seed
        self.shares = shares

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
        first = self._begins[part] + unit * self.unit_pairs
        rows = first[:, None] + np.arange(self.unit_pairs)
        kept: Rows = rows[rows < self._ends[part][:, None]]
        return kept


class Resegmentation:
    """Splits pairs of a corpus again.

    The split of a sentence depends only on `seed`, the epoch, the number of its pair in the corpus and its side, not on
    batches, processes or earlier draws. A pair that comes several times in an epoch is the same each time. A sentence
    that would have more than `max_length` tokens, the end symbol not counted, stays in this epoch as the corpus has it.
    """

    def __init__(self, corpus: Corpus, sides: Sides, *, seed: int, max_length: int) -> None:
        self._corpus, self._sides, self._seed, self._limit = corpus, sides, seed, max_length + 1

    def __call__(self, epoch: int, rows: Rows) -> DrawnPairs:
        """The pairs `rows`, each any number of times, as epoch `epoch`, counted from 0, has them."""
        rows, sides, change = np.unique(rows), list[DrawnSide | None](), self._sides.changed
        changed = (None, None) if change is None else change(self._corpus, epoch, rows, seed=self._seed)
        for name, splitter, side, own in zip(SIDES, self._sides[:2], self._corpus.sides, changed, strict=True):
            if splitter is None:
                sides.append(own and DrawnSide(own, np.zeros(len(rows), bool)))
                continue
            ids, lengths, _ = own or side.taken(rows)
            drawn = draw(splitter, ids, lengths, seeds(self._seed, epoch, name, rows), limit=self._limit)
            sides.append(DrawnSide(FlatSentences.of(drawn.ids, drawn.lengths), drawn.kept))
        return DrawnPairs(self._corpus, rows, sides)


def seeds(seed: int, epoch: int, side: str, rows: Rows) -> NDArray[np.uint64]:
    """What decides how the sentences of `rows` [B] are split, or changed: [B]."""
    digest = hashlib.blake2b(repr((seed, "subwords", epoch, side)).encode(), digest_size=8).digest()
    return mixed(rows.astype(np.uint64) + np.frombuffer(digest, "<u8").astype(np.uint64))


class DrawnSide(NamedTuple):
    """Sentences of one side."""

    sentences: FlatSentences
    kept: NDArray[np.bool_]
    """Which of them are as the corpus has them, as they would be too long."""


class DrawnPairs:
    """Pairs of a corpus as they have been split anew; they are read like those of the corpus itself."""

    def __init__(self, corpus: Corpus, rows: Rows, sides: list[DrawnSide | None]) -> None:
        """`rows`: those that can be read, ascending. Where a side is None it is that of the corpus."""
        self._corpus, self._rows, self._drawn = corpus, rows, sides

    def _side(self, number: int, rows: Rows) -> tuple[FlatSentences, Rows]:
        """The sentences of a side, and where those of pairs `rows` are among them."""
        drawn = self._drawn[number]
        if drawn is None:
            return self._corpus.sides[number], rows
        return drawn.sentences, np.searchsorted(self._rows, rows)

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and target lengths of pairs `rows` [B], EOS counted: [B] each."""
        (source, left), (target, right) = self._side(0, rows), self._side(1, rows)
        return source.lengths[left], target.lengths[right]

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """Source ids of pairs `rows` [B], PAD at the right: [B, S]."""
        source, places = self._side(0, rows)
        return source.padded(places)

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """Target ids of pairs `rows` [B], PAD at the right: [B, T]."""
        target, places = self._side(1, rows)
        return target.padded(places)

    def too_long(self, rows: Rows) -> int:
        """How many sentences of pairs `rows` stay as they are because they would be too long."""
        places = np.searchsorted(self._rows, rows)
        return sum(int(side.kept[places].sum()) for side in self._drawn if side is not None)


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
        parts = corpus.parts  # whose mean cost in an epoch decides how many pairs an average batch has
        if shares is None:
            mean = max(1.0, sum(part.cost for part in parts) / max(1, sum(part.pairs for part in parts)))
        else:
            mean = sum(share * part.cost / part.pairs for share, part in zip(shares, parts, strict=True))
        limits = [] if batch_sentences is None else [batch_sentences]
        limits += [] if batch_tokens is None else [max(1, int(batch_tokens / mean))]
        self._pool_units = max(1, pool_batches * min(limits) // self.order.unit_pairs)
        self.pools = -(-self.order.units // self._pool_units)
        """Pools in an epoch."""

    def pool(self, epoch: int, number: int) -> Pool:
        """Pool `number` of epoch `epoch`, both counted from 0, its batches in their order."""
        batches, drawn = self._sorted(epoch, number)
        shuffled = Permutation(len(batches), self._seed, "batches", epoch, number)(np.arange(len(batches)))
        return Pool([batches[i] for i in shuffled], drawn)

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
