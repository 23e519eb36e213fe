"""Texts with labels as batches."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nmt.classification.corpus import ClassifiedCorpus
from nmt.classification.model import Texts
from nmt.data.batching import Pairs
from nmt.data.corpus import Rows
from nmt.training.batches import BatchStream


class TextBatch(NamedTuple):
    """Some texts, or pairs of texts, and their labels."""

    source: Texts
    target: Tensor
    """[B, 1]"""

    def pinned(self) -> TextBatch:
        """The same in memory from which a GPU can copy by itself."""
        return TextBatch(self.source.pinned(), self.target.pin_memory())

    def to(self, device: torch.device) -> TextBatch:
        """The same on a device."""
        return TextBatch(self.source.to(device), self.target.to(device, non_blocking=True))


def text_batch(corpus: ClassifiedCorpus, rows: Rows) -> TextBatch:
    """Rows of a corpus."""
    texts = [torch.from_numpy(text.padded(rows)) for text in corpus.texts]
    return TextBatch(Texts(*texts), torch.from_numpy(corpus.padded_target(rows)))


class TextBatches(BatchStream):
    """Batches of a corpus with labels."""

    def batch(self, pairs: Pairs, rows: Rows, *, epoch: int) -> TextBatch:
        assert isinstance(pairs, ClassifiedCorpus)
        return text_batch(pairs, rows)
