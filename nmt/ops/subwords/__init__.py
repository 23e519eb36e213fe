"""Sentences split into random subwords, each as a pure function of its seed: BPE-dropout and unigram sampling.

C kernels on the CPU, and Python with the same results if there is no compiler.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.errors import say_once
from nmt.ops import native

Flags = NDArray[np.uint8]

_MASK = 2**64 - 1

_FACTOR = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, whose multiples spread well."""


class Drawn(NamedTuple):
    """The split sentences, one after the other."""

    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]
    kept: NDArray[np.bool_]
    """For each sentence whether it is unchanged because it would have had more tokens than the limit."""


@dataclass(frozen=True)
class Alphabet:
    """The characters of the V tokens of a vocabulary; a character is represented by its single-character token."""

    first: NDArray[np.int64]
    """[V + 1]; the characters of token i are chars[first[i]:first[i + 1]], at least one."""
    chars: NDArray[np.int32]
    frozen: Flags
    """[V], 1 for unchanged tokens between words: special symbols, bytes. Such a token is its own only character."""
    starts: Flags  # [V], 1 for a character that begins a word


def numbers_of(seed: int) -> Iterator[int]:
    """SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): an endless series of 64-bit numbers from a 64-bit seed."""
    while True:
        seed = z = (seed + _FACTOR) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        yield z ^ (z >> 31)


class Splitter(ABC):
    """A way to split words into tokens at random."""

    alphabet: Alphabet

    @abstractmethod
    def split(self, word: list[int], numbers: Iterator[int]) -> list[int]:
        """The tokens of a word of characters."""

    @abstractmethod
    def kernel(self, longest: int) -> tuple[str, list[Any]]:
        """The kernel that computes the same, and its arguments after sentences and alphabet; `longest`: characters of
        the longest sentence."""


def draw(
    splitter: Splitter, ids: NDArray[Any], lengths: NDArray[Any], seeds: NDArray[np.uint64], *, limit: int
) -> Drawn:
    """Split N sentences at random.

    `ids` has the sentences one after the other, `lengths` [N] their lengths, and `seeds` [N] their seeds. A sentence
    that would have more than `limit` tokens is not changed.
    """
    ids, alphabet = ids.astype(np.int32), splitter.alphabet
    if len(ids) and not 0 <= ids.min() <= ids.max() < len(alphabet.frozen):
        raise ValueError(f"ids from {ids.min()} to {ids.max()}, but the vocabulary has {len(alphabet.frozen)} tokens")
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    problem = native.problem()
    if problem is not None:
        say_once(__name__, f"subwords are drawn by slower Python code, not by a compiled kernel: {problem}")
        return _by_python(splitter, ids, offsets, seeds, limit)
    ends = np.concatenate([[0], np.cumsum(np.diff(alphabet.first)[ids])])[offsets]  # of sentences, in characters
    name, own = splitter.kernel(int(np.diff(ends).max(initial=0)))
    out, found = np.empty(int(ends[-1]), np.int32), np.empty(len(lengths), np.int64)
    kept = np.zeros(len(lengths), np.uint8)
    sentences = [ids, offsets, seeds.view(np.int64), len(lengths), limit]
    parts = [alphabet.first, alphabet.chars, alphabet.frozen, alphabet.starts]
    native.kernel(name, torch.float32)(*map(_passed, [*sentences, *parts, *own, out, found, kept]))
    return Drawn(out[: int(found.sum())], found, kept.astype(bool))


def _passed(value: Any) -> Tensor | int:
    """An argument in the form that kernels take."""
    if not isinstance(value, np.ndarray):
        return int(value)
    return torch.from_numpy(value if value.flags.writeable and value.size else np.array(value, ndmin=1, copy=True))


def _by_python(
    splitter: Splitter, ids: NDArray[np.int32], offsets: NDArray[np.int64], seeds: NDArray[np.uint64], limit: int
) -> Drawn:
    alphabet, tokens = splitter.alphabet, list[int]()
    frozen, starts = alphabet.frozen.tolist(), alphabet.starts.tolist()
    lengths, kept = np.empty(len(seeds), np.int64), np.zeros(len(seeds), bool)
    for s, seed in enumerate(seeds.tolist()):
        before = ids[offsets[s] : offsets[s + 1]].tolist()
        words: list[list[int]] = []
        for i in before:
            for character in alphabet.chars[alphabet.first[i] : alphabet.first[i + 1]].tolist():
                if not words or frozen[i] or starts[character] or frozen[words[-1][-1]]:
                    words.append([])
                words[-1].append(character)
        after: list[int] = []
        numbers = numbers_of(seed)
        for word in words:
            after += word if frozen[word[0]] else splitter.split(word, numbers)
        kept[s] = len(after) > limit
        tokens += before if kept[s] else after
        lengths[s] = len(before if kept[s] else after)
    return Drawn(np.array(tokens, np.int32), lengths, kept)


_FREE = -1


class Table:
    """The values of pairs (a, b); all numbers are at least 0 and below 2^31."""

    def __init__(self, values: Mapping[tuple[int, int], int]) -> None:
        size = 2
        while size < 2 * len(values):  # at most half full, so that a look-up seldom meets a second key
            size *= 2
        self.mask = size - 1
        self.keys: NDArray[np.int64] = np.full(size, _FREE, np.int64)
        self.values: NDArray[np.int32] = np.zeros(size, np.int32)
        self._dictionary = dict(values)
        for (a, b), value in self._dictionary.items():
            key = a << 32 | b
            place = ((key * _FACTOR) % 2**64 >> 32) & self.mask
            while self.keys[place] != _FREE:
                place = (place + 1) & self.mask
            self.keys[place], self.values[place] = key, value

    def find(self, a: int, b: int) -> int:
        """The value of a pair, -1 for none."""
        return self._dictionary.get((a, b), -1)


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

    def split(self, word: list[int], numbers: Iterator[int]) -> list[int]:
        while True:
            best, rank = -1, 0
            for i, (left, right) in enumerate(zip(word, word[1:], strict=False)):
                merged = self._merges.find(left, right)
                if merged < 0 or (self._threshold and next(numbers) >> (64 - _BITS) < self._threshold):
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
        # The next node for each (node, character), starting at node 0, and the token that ends at each node, -1: none.
        children, ends = dict[tuple[int, int], int](), dict[int, int]()
        for token, characters in tokens.items():
            node = 0
            for character in characters:
                node = children.setdefault((node, character), len(children) + 1)
            ends[node] = token
        self._children, self._pieces = Table(children), np.full(len(children) + 1, -1, np.int32)
        self._pieces[list(ends)] = list(ends.values())
        self._weights = np.exp(np.maximum(alpha * scores, _LEAST))

    def split(self, word: list[int], numbers: Iterator[int]) -> list[int]:
        # For each place the sum over all paths from it to the end, as mantissa and exponent.
        sums = [(0.0, 0)] * len(word) + [(1.0, 0)]
        for i in reversed(range(len(word))):
            terms, exponent = self._terms(word, i, sums)
            mantissa, own = math.frexp(_sum(term for _, _, term in terms))
            sums[i] = (mantissa, exponent + own)
        tokens, i = list[int](), 0
        while i < len(word):
            terms, _ = self._terms(word, i, sums)
            drawn = (next(numbers) >> 11) * 2.0**-53 * _sum(term for _, _, term in terms)
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
        found: list[tuple[int, int]] = []
        node = 0
        for end in range(i + 1, len(word) + 1):
            node = self._children.find(node, word[end - 1])
            if node < 0:
                break
            if self._pieces[node] >= 0:
                found.append((end, int(self._pieces[node])))
        largest = max(sums[end][1] for end, _ in found)
        return [
            (end, token, math.ldexp(float(self._weights[token]) * sums[end][0], max(-4000, sums[end][1] - largest)))
            for end, token in found
        ], largest

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
