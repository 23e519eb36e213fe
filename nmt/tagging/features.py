"""What a tagger reads of sentences, as ids; the training text among them, with words to learn unknown ones from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nmt.data.corpus import FlatSentences, Part, Rows, flat
from nmt.data.sampler import mixed
from nmt.data.vocabulary import PAD, UNK, Vocabulary

LONGEST_SPELLING = 64
"""Characters of a word that are read: of a longer one half of them from its beginning and half from its end."""


@dataclass(frozen=True)
class Features:
    """Sentences of tokens as ids; all members but `letters` have the same lengths."""

    words: FlatSentences
    forms: FlatSentences | None = None
    """Of each word its row in `letters`; 0 is none."""
    letters: FlatSentences | None = None
    """The characters of each different word; row 0 is empty."""
    bigrams: FlatSentences | None = None
    """Of each character the pair that it makes with the next one; EOS of the last."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """[N]"""
        return self.words.lengths

    @property
    def unknown(self) -> int:
        """Tokens that the vocabulary lacks."""
        return int((self.words.ids == UNK).sum())


def spelled(sentences: Sequence[Sequence[str]], characters: Vocabulary) -> tuple[FlatSentences, FlatSentences]:
    """`Features.forms` and `Features.letters` of sentences of words."""
    rows: dict[str, int] = {"": 0}
    forms = flat([rows.setdefault(word, len(rows)) for word in sentence] for sentence in sentences)
    return forms, flat(characters.encode(_shown(word)) for word in rows)


def _shown(word: str) -> str:
    half = LONGEST_SPELLING // 2
    return word if len(word) <= LONGEST_SPELLING else word[:half] + word[-half:]


@dataclass(frozen=True)
class TaggedCorpus:
    """Features of sentences with their labels; what batches are made of (`nmt.data.batching.Pairs`)."""

    features: Features
    labels: FlatSentences

    def __len__(self) -> int:
        return len(self.labels.lengths)

    @cached_property
    def key(self) -> str:
        """Digest of tokens and labels."""
        digest = hashlib.sha256()
        known = (self.features.words, self.features.forms, self.features.letters, self.features.bigrams, self.labels)
        for part in known:
            if part is not None:
                digest.update(part.lengths.tobytes() + b"\n" + part.ids.tobytes() + b"\n")
        return digest.hexdigest()

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """[N]"""
        return self.features.lengths

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """[N], the same."""
        return self.labels.lengths

    @property
    def parts(self) -> Sequence[Part]:
        """One."""
        return (Part(len(self), int(self.labels.lengths.sum())),)

    def lengths(self, rows: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Of sentences `rows` [B]: [B] each."""
        return self.source_lengths[rows], self.target_lengths[rows]

    def padded_source(self, rows: Rows) -> NDArray[np.int64]:
        """Ids of the tokens of sentences `rows` [B], PAD at the right: [B, T]."""
        return self.features.words.padded(rows)

    def padded_target(self, rows: Rows) -> NDArray[np.int64]:
        """Ids of the labels of sentences `rows` [B], PAD at the right: [B, T]."""
        return self.labels.padded(rows)

    @cached_property
    def once(self) -> NDArray[np.bool_]:
        """Which ids of tokens come once in the whole corpus."""
        return np.bincount(self.features.words.ids, minlength=1) == 1

    def with_unknown(self, rows: Rows, *, share: float, seed: int, epoch: int) -> NDArray[np.int64]:
        """`padded_source`, but of the tokens that come once about `share` are UNK.

        Which ones is a function of the seed, the epoch and the place in the corpus.
        """
        words = self.padded_source(rows)
        chosen = self.once[words] & (words != PAD)
        if not chosen.any() or share == 0:
            return words
        key = hashlib.blake2b(repr(("unknown", seed, epoch)).encode(), digest_size=8).digest()
        places = self.features.words.offsets[rows][:, None] + np.arange(words.shape[1])
        drawn = mixed(mixed(places.astype(np.uint64)) ^ np.frombuffer(key, "<u8")[0])
        words[chosen & (drawn.astype(np.float64) < share * 2.0**64)] = UNK
        return words
