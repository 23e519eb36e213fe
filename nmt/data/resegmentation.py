"""Training text split again into subwords in each epoch, as a pure function of seed, epoch, pair and side."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import SIDES, Corpus
from nmt.data.flat_sentences import FlatSentences
from nmt.data.permutation import mixed
from nmt.data.sampling import Rows
from nmt.ops.subwords import Splitter, draw


class Sides(NamedTuple):
    """How each side is split again; None: it stays unchanged."""

    source: Splitter | None = None
    target: Splitter | None = None


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
        rows = np.unique(rows)
        return DrawnPairs(self._corpus, rows, [self._side(number, epoch, rows) for number in range(len(SIDES))])

    def _side(self, number: int, epoch: int, rows: Rows) -> DrawnSide | None:
        splitter = self._sides[number]
        if splitter is None:
            return None
        ids, lengths, _ = self._corpus.sentences(SIDES[number], rows)
        drawn = draw(splitter, ids, lengths, seeds(self._seed, epoch, SIDES[number], rows), limit=self._limit)
        return DrawnSide(FlatSentences.of(drawn.ids, drawn.lengths), drawn.kept)


def seeds(seed: int, epoch: int, side: str, rows: Rows) -> NDArray[np.uint64]:
    """What decides how the sentences of `rows` [B] are split: [B]."""
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
        self._corpus, self._rows = corpus, rows
        self._source, self._target = sides

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Source and target lengths of pairs `rows` [B], EOS counted: [B] each."""
        places, (source, target) = self._places(rows), self._corpus.lengths(rows)
        return (
            source if self._source is None else self._source.sentences.lengths[places],
            target if self._target is None else self._target.sentences.lengths[places],
        )

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """Source ids of pairs `rows` [B], PAD at the right: [B, S]."""
        side = self._source
        return self._corpus.padded_source(rows) if side is None else side.sentences.padded(self._places(rows))

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """Target ids of pairs `rows` [B], PAD at the right: [B, T]."""
        side = self._target
        return self._corpus.padded_target(rows) if side is None else side.sentences.padded(self._places(rows))

    def too_long(self, rows: Rows) -> int:
        """How many sentences of pairs `rows` stay as they are because they would be too long."""
        places = self._places(rows)
        return sum(int(side.kept[places].sum()) for side in (self._source, self._target) if side is not None)

    def _places(self, rows: Rows) -> NDArray[np.int64]:
        return np.searchsorted(self._rows, rows)
