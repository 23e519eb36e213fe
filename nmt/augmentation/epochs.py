"""The pairs of an epoch with some of them changed: a pure function of seed, epoch and place in the corpus."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from nmt.augmentation.modifiers import Pair
from nmt.data.corpus import Corpus, FlatSentences, Rows, Tags, flat
from nmt.data.sampler import seeds
from nmt.data.tokenizer import Tokenizer
from nmt.data.vocabulary import EOS, UNK
from nmt.errors import ConfigError
from nmt.registry import AUGMENTERS, MODIFIERS


@AUGMENTERS.register("text")
class Augmentation:
    """Changes some pairs before they are split into tokens. They are read from their ids, whose text they are.

    A pair with a token that is not in the vocabulary stays as it is, and so does one that would be longer than
    `max_length` tokens. A tag before the source stays.
    """

    def __init__(
        self,
        choices: Sequence[Mapping[str, float]],
        tokenizer: Tokenizer,
        languages: tuple[str, str],
        *,
        tags: Tags = (),
        max_length: int,
    ) -> None:
        """`choices`: each modifier and the share of the pairs that it changes, 0 to 1, in the order of their use.
        `tags`: the tokens before the sources of each part of the corpus.

        Raises ConfigError for a tokenizer of text that is already split.
        """
        if tokenizer.splits_at_spaces:
            raise ConfigError("data.augmentation: needs raw text, but data.tokenizer takes text that is already split")
        for name in {name: None for choice in choices for name in choice}:
            if MODIFIERS.known(name) is None:
                raise ConfigError(f"data.augmentation: {MODIFIERS.unknown(name)}")
        self._modifiers = [
            (name, share, MODIFIERS.get(name)(languages)) for choice in choices for name, share in choice.items()
        ]
        self._tokenizer, self._tags, self._limit = tokenizer, tags, max_length + 1

    def __call__(self, corpus: Corpus, epoch: int, rows: Rows, *, seed: int) -> tuple[FlatSentences, FlatSentences]:
        """Source and target of pairs `rows` [B] in epoch `epoch`, from 0, end symbols included."""
        drawn = [
            seeds(seed, epoch, f"modifier {number}", rows) >> np.uint64(11) < np.uint64(round(share * 2**53))
            for number, (_, share, _) in enumerate(self._modifiers)
        ]  # [modifiers][B]
        keys = seeds(seed, epoch, "augmentation", rows)
        ends = np.cumsum([part.pairs for part in corpus.parts])
        lines: list[Pair] = []
        changed: list[tuple[int, Sequence[int]]] = []
        for place in np.flatnonzero(np.any(drawn, axis=0)).tolist():
            row = int(rows[place])
            part = int(np.searchsorted(ends, row, side="right"))
            tag = self._tags[part] if self._tags else ()
            pair = self._pair(corpus, row, tag)
            if pair is None:
                continue
            is_last = row + 1 == ends[part]
            new, groups = pair, set[str]()
            for (name, _, modifier), own in zip(self._modifiers, drawn, strict=True):
                if not own[place] or modifier.group in groups:
                    continue
                groups |= {modifier.group} - {""}
                following = self._pair(corpus, row + 1, tag) if modifier.needs_next and not is_last else None
                new = Pair(*modifier(new, random.Random(f"{keys[place]} {name}"), following))
            if new != pair:
                lines.append(new)
                changed.append((place, tag))
        source = self._tokenizer.encode_source([pair.source for pair in lines])
        target = self._tokenizer.encode_target([pair.target for pair in lines])
        sides: list[dict[int, list[int]]] = [{}, {}]
        for (place, tag), left, right in zip(changed, source, target, strict=True):
            left = [*tag, *left, EOS]
            if left[:-1] and right and max(len(left), len(right) + 1) <= self._limit:
                sides[0][place], sides[1][place] = left, [*right, EOS]
        first, second = (_replaced(side.taken(rows), own) for side, own in zip(corpus.sides, sides, strict=True))
        return first, second

    def _pair(self, corpus: Corpus, row: int, tag: Sequence[int]) -> Pair | None:
        """The text of a pair; None where it cannot be known."""
        source, target = corpus.source(row).tolist(), corpus.target(row).tolist()
        if UNK in source or UNK in target:
            return None
        source = source[len(tag) : -1]
        return Pair(self._tokenizer.decode_source(source), self._tokenizer.decode_target(target[:-1]))


def _replaced(sentences: FlatSentences, new: Mapping[int, list[int]]) -> FlatSentences:
    if not new:
        return sentences
    return flat(new.get(i) or sentences.row(i).tolist() for i in range(len(sentences.lengths)))
