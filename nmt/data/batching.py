"""Batches: pairs of similar length under a budget for training, lines of similar length for translation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.corpus import Corpus
from nmt.data.vocabulary import PAD

T = TypeVar("T")
Rows = NDArray[np.int64]


class Batch(NamedTuple):
    """Padded sentence pairs; every row ends with EOS, then PAD."""

    source: Tensor  # [B, S] int64
    target: Tensor  # [B, T] int64
    rows: Rows  # [B] which pairs of the corpus these are


class HasLengths(Protocol):
    """What the sampler needs of a corpus."""

    @property
    def source_lengths(self) -> NDArray[np.int32]: ...

    @property
    def target_lengths(self) -> NDArray[np.int32]: ...


class EpochBatches(Sequence[Rows]):
    """The batches of one epoch, in order; batch i is an array of rows of the corpus."""

    def __init__(self, order: NDArray[Any], starts: Rows, shuffled: Rows) -> None:
        self._order = order  # [pairs] rows, batch by batch
        self._starts = starts  # [batches + 1] where each batch begins in `order`
        self._shuffled = shuffled  # [batches] which of them comes when

    def __len__(self) -> int:
        return len(self._shuffled)

    @overload
    def __getitem__(self, i: int) -> Rows: ...

    @overload
    def __getitem__(self, i: slice) -> Sequence[Rows]: ...

    def __getitem__(self, i: int | slice) -> Rows | Sequence[Rows]:
        if isinstance(i, slice):
            return EpochBatches(self._order, self._starts, self._shuffled[i])
        j = self._shuffled[i]
        return self._order[self._starts[j] : self._starts[j + 1]].astype(np.int64)


class BatchSampler:
    """Cuts a corpus into batches, anew for each epoch.

    A batch of n pairs holds at most `batch_sentences` pairs, and costs n times the longest source
    or target among them, EOS and padding counted: at most `batch_tokens`. A single pair that costs
    more is a batch of its own, so every pair is in exactly one batch of an epoch. Either limit may
    be None, not both.

    The pairs are shuffled, taken in pools of about `pool_batches` batches, sorted by length within
    a pool and cut; then the batches of the whole epoch are shuffled. The result depends on nothing
    but the lengths, the settings, `seed` and the epoch, so (epoch, batch) is a position to resume
    from. An epoch takes some 30 bytes a pair while it is made and 4 or 8 afterwards.
    """

    def __init__(
        self,
        corpus: HasLengths,
        *,
        batch_tokens: int | None = None,
        batch_sentences: int | None = None,
        pool_batches: int = 64,
        seed: int = 1,
    ) -> None:
        if batch_tokens is None and batch_sentences is None:
            raise ValueError("a batch needs a limit: batch_tokens or batch_sentences")
        self._source = corpus.source_lengths
        self._target = corpus.target_lengths
        self._batch_tokens = batch_tokens
        self._batch_sentences = batch_sentences
        self._seed = seed
        self._pool = self._pool_size(pool_batches)

    def _pool_size(self, pool_batches: int) -> int:
        """Pairs in a pool, from the mean cost of a pair."""
        sentences = self._batch_sentences
        if self._batch_tokens is not None and len(self._source):
            by_tokens = self._batch_tokens / float(np.maximum(self._source, self._target).mean())
            sentences = max(1, int(by_tokens)) if sentences is None else max(1, min(sentences, int(by_tokens)))
        return pool_batches * (sentences or 1)

    def epoch(self, epoch: int) -> EpochBatches:
        """The batches of epoch `epoch`, counted from 0 as everything here."""
        generator = np.random.default_rng([self._seed, epoch])
        pairs = len(self._source)
        order = generator.permutation(pairs).astype(np.uint32 if pairs < 2**32 else np.int64)
        source, target = self._source[order], self._target[order]
        cost = np.maximum(source, target)
        pool = np.arange(pairs) // self._pool
        by_length = np.lexsort((source, target, cost, pool))  # the last key counts most
        starts = self._cut(cost[by_length])
        return EpochBatches(order[by_length], starts, generator.permutation(len(starts) - 1))

    def _cut(self, cost: NDArray[np.int32]) -> Rows:
        """Boundaries [batches + 1] of the batches of pairs with these costs [pairs], in this order."""
        starts = [0]
        pairs = len(cost)
        while starts[-1] < pairs:
            start = starts[-1]
            pool_end = min((start // self._pool + 1) * self._pool, pairs)
            if self._batch_sentences is not None:
                pool_end = min(pool_end, start + self._batch_sentences)
            end = pool_end
            if self._batch_tokens is not None:
                # Costs do not fall within a pool, so the last pair of a batch is its most expensive.
                window = cost[start : min(pool_end, start + self._batch_tokens // int(cost[start]))]
                fits = window.astype(np.int64) * np.arange(1, len(window) + 1) <= self._batch_tokens
                end = start + max(1, len(window) if fits.all() else int(fits.argmin()))
            starts.append(end)
        return np.array(starts, np.int64)

    def padding_share(self, epoch: int) -> float:
        """Share of the tokens of an epoch's batches, both sides together, that are padding; in 0..1."""
        batches = self.epoch(epoch)
        used = slots = 0
        for lengths in (self._source, self._target):
            sorted_lengths = lengths[batches._order]
            longest = np.maximum.reduceat(sorted_lengths, batches._starts[:-1]) if len(batches) else np.zeros(0)
            used += int(sorted_lengths.sum(dtype=np.int64))
            slots += int((longest.astype(np.int64) * np.diff(batches._starts)).sum())
        return 1 - used / slots if slots else 0.0


def collate(corpus: Corpus, rows: Rows | Sequence[int]) -> Batch:
    """The pairs `rows` of a corpus as padded tensors."""
    rows = np.asarray(rows, np.int64)
    return Batch(
        pad([corpus.source(i) for i in rows]),
        pad([corpus.target(i) for i in rows]),
        rows,
    )


def pad(sentences: Sequence[Sequence[int] | NDArray[Any]]) -> Tensor:
    """Sentences of ids as one int64 tensor [B, longest], PAD at the right."""
    padded = np.full((len(sentences), max(map(len, sentences), default=0)), PAD, np.int64)
    for row, ids in zip(padded, sentences, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded)


def batch_lines(
    lengths: Sequence[int], *, batch_tokens: int, copies: int = 1, batch_rows: int | None = None
) -> list[list[int]]:
    """Positions of lines in batches of similar length, longest first.

    A batch of n lines costs n times its longest line times `copies` (the beam size), at most
    `batch_tokens`; a line that costs more is alone. `batch_rows` limits n times `copies` as well.
    Longest first shows a lack of memory at once.
    """
    most = len(lengths) if batch_rows is None else max(1, batch_rows // copies)
    batches: list[list[int]] = []
    longest = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not batches or len(batches[-1]) == most or (len(batches[-1]) + 1) * longest * copies > batch_tokens:
            batches.append([])
            longest = max(1, lengths[i])
        batches[-1].append(i)
    return batches


def restore_order(batches: Iterable[Sequence[int]], results: Iterable[Sequence[T]]) -> list[T]:
    """Undo `batch_lines`: the results of each batch's lines, back at the lines' positions."""
    placed = {
        i: result
        for positions, batch in zip(batches, results, strict=True)
        for i, result in zip(positions, batch, strict=True)
    }
    return [placed[i] for i in range(len(placed))]
