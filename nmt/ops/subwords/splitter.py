"""Common parts of all random splitters: from sentences to words of characters and back, seeds, limits."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.errors import say_once
from nmt.ops import native

logger = logging.getLogger(__name__)

Flags = NDArray[np.uint8]

_MASK = 2**64 - 1


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
    starts: Flags
    """[V], 1 for a character that begins a word."""


class Numbers:
    """SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): an endless series of 64-bit numbers from a 64-bit seed."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def next(self) -> int:
        """The next number."""
        self._state = z = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)


class Splitter(ABC):
    """A way to split words into tokens at random."""

    alphabet: Alphabet

    @abstractmethod
    def split(self, word: list[int], numbers: Numbers) -> list[int]:
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
    if problem is None:
        return _by_kernel(splitter, ids, offsets, seeds, limit)
    say_once(logger, f"subwords are drawn by slower Python code, not by a compiled kernel: {problem}")
    return _by_python(splitter, ids, offsets, seeds, limit)


def _by_kernel(
    splitter: Splitter, ids: NDArray[np.int32], offsets: NDArray[np.int64], seeds: NDArray[np.uint64], limit: int
) -> Drawn:
    alphabet, count = splitter.alphabet, len(offsets) - 1
    ends = np.concatenate([[0], np.cumsum(np.diff(alphabet.first)[ids])])[offsets]  # of sentences, in characters
    name, own = splitter.kernel(int(np.diff(ends).max(initial=0)))
    out, lengths = np.empty(int(ends[-1]), np.int32), np.empty(count, np.int64)
    kept = np.zeros(count, np.uint8)
    sentences = [ids, offsets, seeds.view(np.int64), count, limit]
    parts = [alphabet.first, alphabet.chars, alphabet.frozen, alphabet.starts]
    call: Callable[..., None] = native.kernel(name, torch.float32)
    call(*map(_passed, [*sentences, *parts, *own, out, lengths, kept]))
    return Drawn(out[: int(lengths.sum())], lengths, kept.astype(bool))


def _passed(value: Any) -> Tensor | int:
    """An argument in the form that kernels take."""
    if not isinstance(value, np.ndarray):
        return int(value)
    return torch.from_numpy(value if value.flags.writeable and value.size else np.array(value, ndmin=1, copy=True))


def _by_python(
    splitter: Splitter, ids: NDArray[np.int32], offsets: NDArray[np.int64], seeds: NDArray[np.uint64], limit: int
) -> Drawn:
    tokens: list[int] = []
    lengths, kept = np.empty(len(offsets) - 1, np.int64), np.zeros(len(offsets) - 1, bool)
    for s, seed in enumerate(seeds.tolist()):
        before = ids[offsets[s] : offsets[s + 1]].tolist()
        after = _split(splitter, before, Numbers(seed))
        kept[s] = len(after) > limit
        tokens += before if kept[s] else after
        lengths[s] = len(before if kept[s] else after)
    return Drawn(np.array(tokens, np.int32), lengths, kept)


def _split(splitter: Splitter, ids: list[int], numbers: Numbers) -> list[int]:
    alphabet, tokens, word = splitter.alphabet, list[int](), list[int]()

    def end_word() -> None:
        if word:
            tokens.extend(splitter.split(word[:], numbers))
            word.clear()

    for i in ids:
        if alphabet.frozen[i]:
            end_word()
            tokens.append(i)
            continue
        for character in alphabet.chars[alphabet.first[i] : alphabet.first[i + 1]].tolist():
            if alphabet.starts[character]:
                end_word()
            word.append(character)
    end_word()
    return tokens
