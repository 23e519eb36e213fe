"""Padded batches of sentence pairs, and lines of similar length together for translation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.corpus import Rows
from nmt.data.vocabulary import PAD

T = TypeVar("T")


class Pairs(Protocol):
    """The source of batches: a corpus, or a part of it in an epoch."""

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and target lengths of pairs `rows` [B], EOS counted: [B] each."""

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """Source ids of pairs `rows` [B], PAD at the right: [B, S]."""

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """Target ids of pairs `rows` [B], PAD at the right: [B, T]."""


class Batch(NamedTuple):
    """Padded sentence pairs; every row ends with EOS, then PAD."""

    source: Tensor  # [B, S] int64, no column of padding alone
    target: Tensor  # [B, T] int64, the same
    words: Tensor  # [N] int64, the places of the words in target, counted row by row
    rows: Rows  # [B] which pairs of the corpus these are
    epoch: int = 0  # of training, from 1

    def pinned(self) -> Batch:
        """The same in memory from which a GPU can copy by itself."""
        source, target, words = (part.pin_memory() for part in self[:3])
        return self._replace(source=source, target=target, words=words)

    def to(self, device: torch.device) -> Batch:
        """The same on a device; copies from pinned memory are asynchronous."""
        source, target, words = (part.to(device, non_blocking=True) for part in self[:3])
        return self._replace(source=source, target=target, words=words)


def collate(pairs: Pairs, rows: Rows | Sequence[int]) -> Batch:
    """The pairs `rows` of a corpus as padded tensors."""
    rows = np.asarray(rows, np.int64)
    source, target = (torch.from_numpy(ids) for ids in (pairs.padded_source(rows), pairs.padded_target(rows)))
    return Batch(source, target, (target != PAD).flatten().nonzero().squeeze(1), rows)


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
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if not batches or len(batches[-1]) == most or (len(batches[-1]) + 1) * longest * copies > batch_tokens:
            batches.append([])
            longest = max(1, lengths[i])
        batches[-1].append(i)
    return batches


def restore_order(batches: Iterable[Sequence[int]], results: Iterable[Sequence[T]]) -> list[T]:
    """Undo `batch_lines`: the results of each batch's lines, back at the lines' positions."""
    placed: dict[int, T] = {}
    for positions, found in zip(batches, results, strict=True):
        placed.update(zip(positions, found, strict=True))
    return list(map(placed.__getitem__, range(len(placed))))
