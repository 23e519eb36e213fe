"""Subword regularisation: a random segmentation of each word is drawn, a likely one more often."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.ops.subwords.splitter import Alphabet, Numbers, Splitter
from nmt.ops.subwords.table import Table

_LEAST = -600.0
"""Smallest logarithm of a weight: e^-600 still has full precision."""


Term = tuple[int, int, float]
"""The end of a token, the token, and its term in a sum."""


class PathSampling(Splitter):
    """A segmentation x is drawn with probability P(x)^alpha / sum of all (Kudo, ACL 2018, with l = infinity).

    P(x) is the product of the probabilities of its tokens. With alpha = 0 all segmentations are equally likely; the
    larger alpha is, the more likely is the usual one.
    """

    def __init__(
        self, alphabet: Alphabet, tokens: Mapping[int, Sequence[int]], scores: NDArray[np.float64], *, alpha: float
    ) -> None:
        """`tokens`: the characters of each token of words, including all single characters. `scores` [V]: the
        log-probabilities of tokens."""
        if not 0 <= alpha < math.inf:
            raise ValueError(f"alpha = {alpha} must be 0 or more")
        self.alphabet = alphabet
        self._children, self._pieces = _trie(tokens)
        self._weights = np.exp(np.maximum(alpha * scores, _LEAST))

    def split(self, word: list[int], numbers: Numbers) -> list[int]:
        # For each place the sum over all paths from it to the end, as mantissa and exponent.
        sums = [(0.0, 0)] * len(word) + [(1.0, 0)]
        for i in reversed(range(len(word))):
            terms, exponent = self._terms(word, i, sums)
            mantissa, own = math.frexp(_sum(term for _, _, term in terms))
            sums[i] = (mantissa, exponent + own)
        tokens, i = list[int](), 0
        while i < len(word):
            terms, _ = self._terms(word, i, sums)
            drawn = (numbers.next() >> 11) * 2.0**-53 * _sum(term for _, _, term in terms)
            reached = 0.0
            for end, token, term in terms:
                reached += term
                chosen = end, token
                if drawn < reached:
                    break
            i = chosen[0]
            tokens.append(chosen[1])
        return tokens

    def _terms(self, word: list[int], i: int, sums: list[tuple[float, int]]) -> tuple[list[Term], int]:
        """The terms of all tokens that begin at i, and the exponent to which the terms are relative."""
        found = list(self._edges(word, i))
        largest = max(sums[end][1] for end, _ in found)
        return [
            (end, token, math.ldexp(float(self._weights[token]) * sums[end][0], max(-4000, sums[end][1] - largest)))
            for end, token in found
        ], largest

    def _edges(self, word: list[int], i: int) -> Iterator[tuple[int, int]]:
        node = 0
        for end in range(i + 1, len(word) + 1):
            node = self._children.find(node, word[end - 1])
            if node < 0:
                return
            if self._pieces[node] >= 0:
                yield end, int(self._pieces[node])

    def kernel(self, longest: int) -> tuple[str, list[Any]]:
        size, table = longest + 1, self._children
        floats = [np.empty(size, np.float64) for _ in range(2)]
        integers = [np.empty(size, np.int64) for _ in range(2)]
        tree = [table.keys, table.values, table.mask, self._pieces, self._weights]
        return "draw_paths", [*tree, floats[0], *integers, np.empty(size, np.int32), floats[1]]


def _sum(terms: Iterator[float]) -> float:
    """The sum in sequential order, as in the kernel; newer versions of Python round differently in sum()."""
    total = 0.0
    for term in terms:
        total += term
    return total


def _trie(tokens: Mapping[int, Sequence[int]]) -> tuple[Table, NDArray[np.int32]]:
    """The next node for each (node, character), starting at node 0, and the token that ends at each node, -1: none."""
    children: dict[tuple[int, int], int] = {}
    ends: dict[int, int] = {}
    for token, characters in tokens.items():
        node = 0
        for character in characters:
            node = children.setdefault((node, character), len(children) + 1)
        ends[node] = token
    pieces = np.full(len(children) + 1, -1, np.int32)
    pieces[list(ends)] = list(ends.values())
    return Table(children), pieces
