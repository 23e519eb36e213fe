"""A text as lines by themselves: each word is predicted from those before it in its line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import FlatSentences, Part, Rows
from nmt.data.streams import EncodedText
from nmt.data.vocabulary import EOS


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

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Of lines `rows` [B]: [B] each."""
        return self.source_lengths[rows], self.target_lengths[rows]

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """What is read of lines `rows` [B], PAD at the right: [B, T]."""
        return self.source.padded(rows)

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """What is predicted of lines `rows` [B], PAD at the right: [B, T]."""
        return self.target.padded(rows)
