"""The word that a prefix ends within: it may be spelled by whatever tokens begin with it or make it up."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.search.ruled import Step


class StartedWord(NamedTuple):
    """The end of a prefix, as text."""

    after: int
    """Tokens of the prefix before it."""
    text: bytes
    """What the next tokens must spell before anything else."""


class Spellings:
    """Which tokens spell the beginning of a text, or more than all of it."""

    def __init__(self, pieces: Sequence[bytes], *, without: Container[int] = ()) -> None:
        """`pieces`: what each target id adds to a text, in UTF-8; ids in `without` spell nothing."""
        self.pieces = pieces
        self._sorted = sorted((piece, i) for i, piece in enumerate(pieces) if piece and i not in without)
        self._of: dict[bytes, list[int]] = defaultdict(list)
        for piece, i in self._sorted:
            self._of[piece].append(i)

    def within(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Ids of the pieces that `text` begins with, and their lengths."""
        for length in range(1, len(text) + 1):
            yield from ((i, length) for i in self._of.get(text[:length], ()))

    def beyond(self, text: bytes) -> Iterator[int]:
        """Ids of the pieces that begin with `text` and are longer."""
        for piece, i in self._sorted[bisect_left(self._sorted, (text, len(self.pieces))) :]:
            if not piece.startswith(text):
                return
            yield i


class SpelledWords:
    """The rule that makes each sentence finish its started word.

    Tokens within the word have the model's probability whatever other rules exclude; for tokens that run beyond its
    end, the other rules apply.
    """

    def __init__(
        self, spellings: Spellings, words: Sequence[StartedWord | None], *, places: dict[int, int] | None
    ) -> None:
        """
        Args:
            spellings: of the vocabulary.
            words: the started word of each sentence of the batch; None for none.
            places: of the ids of the words that the search chooses among; None for all, where an id is its place.
        """
        self._words = words
        known = {word.text for word in words if word is not None}
        self._choices = {text: _choices(text, spellings, places) for text in known}
        ids = range(len(spellings.pieces)) if places is None else places
        self._lengths = [len(spellings.pieces[i]) for i in ids]  # in the order of the places

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        t = step.history.shape[1]
        for row, line in enumerate(step.lines.tolist()):
            word = self._words[line]
            if word is None or not word.after <= t < word.after + len(word.text):
                continue
            spelled = sum(self._lengths[place] for place in step.history[row, word.after :].tolist())
            if spelled < len(word.text):
                within, beyond = (
                    torch.tensor(places, dtype=torch.int64, device=log_probs.device)
                    for places in self._choices[word.text].get(spelled, ((), ()))
                )
                kept = log_probs[row, beyond]
                log_probs[row] = -math.inf
                log_probs[row, within] = original[row, within]
                log_probs[row, beyond] = kept


def _choices(
    text: bytes, spellings: Spellings, places: dict[int, int] | None
) -> dict[int, tuple[list[int], list[int]]]:
    """By the bytes spelled so far, the places of the tokens that continue within a text and beyond its end.

    Only tokens after which the rest can be spelled, too.
    """
    found: dict[int, tuple[list[int], list[int]]] = {}
    for spelled in reversed(range(len(text))):
        rest = text[spelled:]
        within = [i for i, length in spellings.within(rest) if spelled + length in {*found, len(text)}]
        beyond = list(spellings.beyond(rest))
        if places is not None:
            within, beyond = ([places[i] for i in ids if i in places] for ids in (within, beyond))
        if within:
            found[spelled] = within, beyond
    return found
