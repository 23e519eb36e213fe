"""Sentences with labels as batches: what a tagger reads of them, and in training words that are taken for unknown."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.data.batching import Pairs
from nmt.data.corpus import Rows
from nmt.tagging.features import Features, TaggedCorpus
from nmt.tagging.model import Sentences
from nmt.training.batches import BatchStream


class TagBatch(NamedTuple):
    """Some sentences and their labels, padded with 0."""

    source: Sentences
    target: Tensor
    """[B, T]"""

    def pinned(self) -> TagBatch:
        """The same in memory from which a GPU can copy by itself."""
        return TagBatch(self.source.pinned(), self.target.pin_memory())

    def to(self, device: torch.device) -> TagBatch:
        """The same on a device."""
        return TagBatch(self.source.to(device), self.target.to(device, non_blocking=True))


def sentences_of(features: Features, rows: Rows, *, words: NDArray[np.int64] | None = None) -> Sentences:
    """Sentences `rows`, with other ids of their words if these are given."""
    forms = letters = bigrams = None
    if features.forms is not None and features.letters is not None:
        padded = features.forms.padded(rows)
        # Row 0, which is padding, is always there, so that numbers of rows begin with it.
        chosen, places = np.unique(np.append(0, padded), return_inverse=True)
        forms = torch.from_numpy(places[1:].reshape(padded.shape).astype(np.int64))
        letters = torch.from_numpy(features.letters.padded(chosen.astype(np.int64)))
    if features.bigrams is not None:
        bigrams = torch.from_numpy(features.bigrams.padded(rows))
    words = features.words.padded(rows) if words is None else words
    return Sentences(torch.from_numpy(words), forms, letters, bigrams)


def tag_batch(corpus: TaggedCorpus, rows: Rows, *, words: NDArray[np.int64] | None = None) -> TagBatch:
    """Sentences `rows` of a corpus with their labels."""
    return TagBatch(sentences_of(corpus.features, rows, words=words), torch.from_numpy(corpus.padded_target(rows)))


class TagBatches(BatchStream):
    """Batches of a corpus with labels, in which words that come once in it are unknown ones now and then."""

    def __init__(self, corpus: TaggedCorpus, *arguments: Any, unknown: float, seed: int, **settings: Any) -> None:
        """`unknown`: how often; the rest as for `BatchStream`."""
        super().__init__(corpus, *arguments, seed=seed, **settings)
        self._tagged, self._unknown, self._drawn_by = corpus, unknown, seed

    def batch(self, pairs: Pairs, rows: Rows, *, epoch: int) -> TagBatch:
        words = self._tagged.with_unknown(rows, share=self._unknown, seed=self._drawn_by, epoch=epoch)
        return tag_batch(self._tagged, rows, words=words)
