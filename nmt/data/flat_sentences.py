"""Sentences of ids in one array, one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.sampling import Rows
from nmt.data.vocabulary import PAD

Ids = NDArray[Any]
"""Token ids, uint16, uint32 or int32."""


class FlatSentences(NamedTuple):
    """One language of a corpus, or of a part of it; the arrays may be maps of files."""

    ids: Ids
    lengths: NDArray[np.int32]
    """[N]"""
    offsets: NDArray[np.int64]
    """[N + 1]; where in `ids` each begins, and the end."""

    @classmethod
    def of(cls, ids: Ids, lengths: NDArray[Any]) -> FlatSentences:
        """Sentences of these lengths [N]."""
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(ids, lengths.astype(np.int32), offsets)

    def row(self, i: int) -> Ids:
        """The ids of sentence `i`, a view."""
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    def padded(self, rows: Rows) -> NDArray[np.int64]:
        """The ids of sentences `rows` [B], PAD at the right: [B, longest]."""
        lengths = self.lengths[rows]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        padded = np.full(inside.shape, PAD, np.int64)
        padded[inside] = self.ids[(self.offsets[rows][:, None] + columns)[inside]]
        return padded

    def taken(self, rows: Rows) -> FlatSentences:
        """Sentences `rows` [B] alone, in this order; memory is in proportion to their tokens."""
        new = FlatSentences.of(self.ids[:0], self.lengths[rows])
        moved = np.repeat(self.offsets[rows] - new.offsets[:-1], new.lengths)
        return new._replace(ids=self.ids[moved + np.arange(len(moved))])
