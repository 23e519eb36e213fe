"""Alignment of each word of a translation to a source word, by the attention of its tokens."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.data.spans import Span, word_spans

Alignment = tuple[tuple[int, int], ...]
"""Pairs of a source word and a target word, both counted from 0, as Pharaoh's format has them; by target words."""


def places_of(spans: Sequence[Span], words: Sequence[Span]) -> list[int]:
    """The place in `words` of each span: that of the word where it begins, or of the next; -1 without any words.

    Text after all words belongs to the last one. An empty span belongs to the word that ends exactly there.
    """
    ends = [end for _, end in words]
    found = (bisect_left(ends, end) if begin == end else bisect_right(ends, begin) for begin, end in spans)
    return [min(place, len(words) - 1) for place in found]


def by_words(attention: Tensor, places: Sequence[int], count: int) -> Tensor:
    """Attention [..., S] added up to [..., count]: `places` has that of each source token, -1 for none.

    The end symbol, and what else is behind the tokens with places, is left out.
    """
    known = [token for token, place in enumerate(places) if place >= 0]
    index = torch.tensor([places[token] for token in known], dtype=torch.long)
    return attention.new_zeros(*attention.shape[:-1], count).index_add_(-1, index, attention[..., known])


def alignment_of(text: str, pieces: Sequence[Span], weights: Tensor) -> Alignment:
    """For each word of `text` the source word with the largest weight, of the pieces at `pieces` together.

    weights [P, W] are those of W source words in each of the P pieces. A word without a piece has no source word.
    """
    words = word_spans(text)
    if not words or not weights.numel():
        return ()
    firsts = places_of(pieces, words)
    lasts = places_of([(max(begin, end - 1), end) for begin, end in pieces], words)
    owned = [
        (piece, word)
        for piece, ends in enumerate(zip(firsts, lasts, strict=True))
        for word in range(ends[0], ends[1] + 1)
    ]
    own, covered = (torch.tensor(column) for column in zip(*owned, strict=True))
    summed = weights.new_zeros(len(words), weights.size(1)).index_add_(0, covered, weights[own])
    known = set(covered.tolist())
    return tuple((source, target) for target, source in enumerate(summed.argmax(1).tolist()) if target in known)
