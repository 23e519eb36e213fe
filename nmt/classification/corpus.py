"""Texts or pairs of texts with their labels as ids; what batches are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import FlatSentences, Part, Rows, flat
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, UNK


@dataclass(frozen=True)
class ClassifiedCorpus:
    """N texts, or pairs of texts, each text with its end symbol (`nmt.data.batching.Pairs`)."""

    texts: Sequence[FlatSentences]
    """One, or two."""
    labels: NDArray[np.int64]
    """[N]; 0 where it is not known"""

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def key(self) -> str:
        """Digest of texts and labels."""
        digest = hashlib.sha256(self.labels.tobytes())
        for text in self.texts:
            digest.update(text.lengths.tobytes() + b"\n" + text.ids.tobytes() + b"\n")
        return digest.hexdigest()

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """[N], of the first text: pairs that are alike in both lengths come together."""
        return self.texts[0].lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """[N], of the second text; 0 where there is none."""
        return self.texts[1].lengths if len(self.texts) > 1 else np.zeros(len(self), np.int32)

    @property
    def parts(self) -> Sequence[Part]:
        """One."""
        return (Part(len(self), int(np.maximum(self.source_lengths, self.target_lengths).sum())),)

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Of rows [B] the words of all texts, and 1, as each has one label: [B] each."""
        return self.source_lengths[rows] + self.target_lengths[rows], np.ones(len(rows), np.int32)

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """Ids of the first texts of rows [B], PAD at the right: [B, S]."""
        return self.texts[0].padded(rows)

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """The labels of rows [B]: [B, 1]."""
        return self.labels[rows, None]

    @property
    def tokens(self) -> int:
        """In all texts, their ends not counted."""
        return sum(len(text.ids) - len(text.lengths) for text in self.texts)

    @property
    def unknown(self) -> int:
        """Tokens that the vocabulary lacks."""
        return sum(int((text.ids == UNK).sum()) for text in self.texts)


def encode(texts: Sequence[Sequence[str]], labels: Sequence[int], tokenizer: Tokenizer) -> ClassifiedCorpus:
    """`texts`: for each line one or two; `labels`: ids, 0 for an unknown one."""
    sides = [flat([*ids, EOS] for ids in tokenizer.encode_source(side)) for side in zip(*texts, strict=True)]
    return ClassifiedCorpus(sides, np.array(labels, np.int64))
