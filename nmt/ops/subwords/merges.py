"""BPE-dropout: words are merged from their characters, and possible merges are left out at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.ops.subwords.splitter import Alphabet, Numbers, Splitter
from nmt.ops.subwords.table import Table

_BITS = 62
"""Number of bits of a random number that are compared, so that the threshold of probability 1 still fits 63 bits."""


class MergeDropout(Splitter):
    """In each step every possible merge is left out with probability p, and the best of the others is applied.

    A word is finished when no merge is left (Provilkov et al., BPE-Dropout, ACL 2020, algorithm 1). p = 0 gives the
    usual segmentation, p = 1 characters.
    """

    def __init__(self, alphabet: Alphabet, merges: Table, ranks: NDArray[np.int32], *, p: float) -> None:
        """`merges`: the merged token of each pair of neighbours. `ranks` [V] of such tokens: the lowest is best, and
        among equal ranks the leftmost in the word."""
        if not 0 <= p <= 1:
            raise ValueError(f"p = {p} is not a probability")
        self.alphabet, self._merges, self._ranks = alphabet, merges, ranks
        self._threshold = int(p * 2**_BITS)

    def split(self, word: list[int], numbers: Numbers) -> list[int]:
        while True:
            best, rank = -1, 0
            for i, (left, right) in enumerate(zip(word, word[1:], strict=False)):
                merged = self._merges.find(left, right)
                if merged < 0 or (self._threshold and numbers.next() >> (64 - _BITS) < self._threshold):
                    continue
                if best < 0 or self._ranks[merged] < rank:
                    best, rank = i, int(self._ranks[merged])
            if best < 0:
                return word
            word[best : best + 2] = [self._merges.find(word[best], word[best + 1])]

    def kernel(self, longest: int) -> tuple[str, list[Any]]:
        merges = self._merges
        scratch = np.empty(longest + 1, np.int32)
        return "draw_merges", [merges.keys, merges.values, merges.mask, self._ranks, self._threshold, scratch]
