"""A text in ids: as one stream in rows that are read side by side, window by window, or as lines by themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import FlatSentences, Ids, Part, id_dtype
from nmt.data.corpus import Rows as LineNumbers
from nmt.data.text import read_lines
from nmt.data.text import windows as windows_of
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, PAD, UNK

LINES = 10_000
"""Lines that are encoded together."""
SHORTEST = 5
"""Words of the shortest window whose length is drawn."""


@dataclass(frozen=True)
class EncodedText:
    """A text in ids, in which each line ends with EOS."""

    ids: Ids
    lines: int
    key: str
    """Digest of the ids."""

    @property
    def unknown(self) -> int:
        """How many of them stand for words that the vocabulary lacks."""
        return int((self.ids == UNK).sum())


def encode_text(files: Sequence[Path], tokenizer: Tokenizer) -> EncodedText:
    """All lines of text files in one language, empty ones too, which are their end alone."""
    dtype, lines = id_dtype(tokenizer.target_size), 0
    parts: list[Ids] = [np.empty(0, dtype)]
    for chunk in windows_of(chain.from_iterable(map(read_lines, files)), size=LINES):
        encoded = tokenizer.encode_target(chunk)
        parts.append(np.fromiter((i for ids in encoded for i in (*ids, EOS)), dtype))
        lines += len(chunk)
    ids = np.concatenate(parts)
    return EncodedText(ids, lines, hashlib.sha256(ids.tobytes()).hexdigest())


@dataclass(frozen=True)
class Rows:
    """A stream of N ids in R rows of the same length L = ceil(N / R), the last ones padded at their ends.

    No id is lost. Each is predicted from the one before it, the first of the stream from an end of line.
    """

    inputs: NDArray[np.int64]
    """[R, L]"""
    targets: NDArray[np.int64]
    """[R, L]"""

    @classmethod
    def of(cls, ids: Ids, rows: int) -> Rows:
        """`rows` R of a stream of one id or more; fewer where the stream has fewer ids."""
        length = -(-len(ids) // min(rows, len(ids)))
        rows = -(-len(ids) // length)  # none is padding alone
        targets = np.full(rows * length, PAD, np.int64)
        targets[: len(ids)] = ids
        inputs = np.full(rows * length, EOS, np.int64)
        inputs[1 : len(ids) + 1] = ids[: rows * length - 1]
        inputs[len(ids) + 1 :] = PAD
        return cls(inputs.reshape(rows, length), targets.reshape(rows, length))

    @property
    def length(self) -> int:
        """L"""
        return self.targets.shape[1]


def windows(length: int, *, steps: int, varied: bool, generator: np.random.Generator) -> NDArray[np.int64]:
    """Ends of the windows that rows of `length` words are read in: ascending, the last one is `length`.

    Each has `steps` words. `varied`: about so many, so that the cuts lie elsewhere in each epoch: a length is drawn
    from a normal distribution of deviation 5 around `steps` or, with probability 0.05, half of it (Merity et al., ICLR
    2018).
    """
    if not varied:
        return np.append(np.arange(steps, length, steps), length)
    count = 2 * (length // max(SHORTEST, steps // 2) + 1)
    means = np.where(generator.random(count) < 0.95, steps, steps / 2)
    drawn = np.maximum(SHORTEST, generator.normal(means, 5).astype(np.int64))
    ends = np.cumsum(drawn)
    while ends[-1] < length:  # hardly ever: the windows drawn were short
        ends = np.append(ends, ends[-1] + max(SHORTEST, steps // 2))
    return np.append(ends[ends < length], length)


@dataclass(frozen=True)
class TextLines:
    """What batches of lines are made of (`nmt.data.batching.Pairs`): source is what is read, target what comes next.

    A line of n tokens has n + 1 of both: it is read after an end of line, and predicted with its own end.
    """

    source: FlatSentences
    target: FlatSentences

    @classmethod
    def of(cls, text: EncodedText) -> TextLines:
        """All lines of a text, empty ones too, which are their end alone."""
        ends = np.flatnonzero(text.ids == EOS) + 1
        target = FlatSentences.of(text.ids, np.diff(ends, prepend=0))
        # The token before a line is the end of the one before.
        before = np.append(np.asarray([EOS], text.ids.dtype), text.ids[:-1])
        return cls(target._replace(ids=before), target)

    def __len__(self) -> int:
        return len(self.target.lengths)

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """[N]"""
        return self.source.lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """[N], the same."""
        return self.target.lengths

    @property
    def parts(self) -> Sequence[Part]:
        """One."""
        return (Part(len(self), len(self.target.ids)),)

    def lengths(self, rows: LineNumbers) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Of lines `rows` [B]: [B] each."""
        return self.source_lengths[rows], self.target_lengths[rows]

    def padded_source(self, rows: LineNumbers) -> NDArray[np.int64]:
        """What is read of lines `rows` [B], PAD at the right: [B, T]."""
        return self.source.padded(rows)

    def padded_target(self, rows: LineNumbers) -> NDArray[np.int64]:
        """What is predicted of lines `rows` [B], PAD at the right: [B, T]."""
        return self.target.padded(rows)
