"""Phrases that a translation must not contain, however they are split into tokens."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from nmt.data import UNK, Tokenizer
from nmt.data.matching import is_boundary, is_in_text, spellings
from nmt.search.ruled import Step

_LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8."""
_SPACES = re.compile(rb" +")


class Phrases:
    """The tokens that complete a phrase, for any number of phrases.

    A phrase is looked for as it is written, as the tokenizer writes it, with its letters composed and decomposed, and
    with its first letter in the other case; by characters, as a word or a sequence of words. A token that completes it
    is excluded even if the next one could make the last word longer: otherwise the search would have to continue with a
    word that it did not mean.
    """

    def __init__(self, pieces: Sequence[bytes], tokenizer: Tokenizer) -> None:
        """`pieces`: what each target id adds to a text, in UTF-8."""
        self._tokenizer = tokenizer
        self.pieces = [_SPACES.sub(b" ", piece) for piece in pieces]
        self._sorted = sorted((piece, i) for i, piece in enumerate(self.pieces) if piece.strip())
        # After a space, or at the beginning of a text, another one adds nothing.
        self._stripped = sorted((piece.lstrip(), i) for i, piece in enumerate(self.pieces) if piece.strip())
        self._inside: dict[bytes, list[int]] = {}
        self._known: dict[str, list[bytes]] = {}

    def excluded(self, text: bytes, phrases: Iterable[str]) -> set[int]:
        """The ids that must not follow `text`, the pieces so far without repeated spaces."""
        found: set[int] = set()
        for phrase in phrases:
            for pattern in self._patterns(phrase):
                found.update(self._occurring_inside(pattern))
                for length in _begun(text, pattern):
                    found.update(self._completing(pattern, length, after_space=not text or text.endswith(b" ")))
        return found

    def first_in(self, text: str, phrases: Iterable[str]) -> str | None:
        """The first of the phrases that `text` contains."""
        return next((one for one in phrases if any(is_in_text(p.decode(), text) for p in self._patterns(one))), None)

    def _patterns(self, phrase: str) -> list[bytes]:
        """The spellings that are looked for."""
        if phrase not in self._known:
            texts = spellings(phrase)
            encoded = self._tokenizer.encode_target(texts)
            texts += [self._tokenizer.decode_target(ids) for ids in encoded if UNK not in ids]
            words = [" ".join(text.split()) for text in texts]
            cased = [text for word in words if word for text in (word, _other_case(word))]
            self._known[phrase] = [text.encode() for text in dict.fromkeys(cased)]
        return self._known[phrase]

    def _completing(self, pattern: bytes, length: int, *, after_space: bool) -> Iterator[int]:
        """Ids of the pieces that begin with the rest of a phrase, and end its last word or end with it."""
        pieces = self._stripped if after_space else self._sorted
        rest, last = pattern[length:], last_character(pattern)
        for piece, i in pieces[bisect_left(pieces, (rest, -1)) :]:
            if not piece.startswith(rest):
                return
            if is_boundary(last, beginning(piece[len(rest) :])):
                yield i

    def _occurring_inside(self, pattern: bytes) -> list[int]:
        """Ids of the pieces that contain the phrase, not at their beginning."""
        if pattern not in self._inside:
            self._inside[pattern] = [
                i
                for piece, i in self._sorted
                if pattern in piece and any(place for place in _occurrences(piece, pattern))
            ]
        return self._inside[pattern]


class ForbiddenPhrases:
    """The rule that keeps the phrases of each sentence out of its translation."""

    def __init__(self, phrases: Phrases, wanted: Sequence[Sequence[str]], *, words: Sequence[int] | None) -> None:
        """
        Args:
            phrases: the facts about the vocabulary.
            wanted: the forbidden phrases of each sentence of the batch.
            words: ids of the words from which the search chooses; None for all.
        """
        self._phrases, self._wanted = phrases, wanted
        self._ids = words
        self._places = None if words is None else {token: place for place, token in enumerate(words)}

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        rows, places = [], []
        for row, (line, history) in enumerate(zip(step.lines.tolist(), step.history.tolist(), strict=True)):
            if self._wanted[line]:
                excluded = self._excluded(history, self._wanted[line])
                rows += [row] * len(excluded)
                places += excluded
        if rows:
            device = log_probs.device
            log_probs[torch.tensor(rows, device=device), torch.tensor(places, device=device)] = -math.inf

    def _excluded(self, history: Sequence[int], wanted: Sequence[str]) -> list[int]:
        ids = history if self._ids is None else [self._ids[place] for place in history]
        text = _SPACES.sub(b" ", b"".join(self._phrases.pieces[i] for i in ids)).lstrip()
        found = self._phrases.excluded(text, wanted)
        return list(found) if self._places is None else [self._places[i] for i in found if i in self._places]


def _begun(text: bytes, pattern: bytes) -> Iterator[int]:
    """The numbers of bytes of a phrase with which `text` may already end, as a whole word; including 0 if one can
    begin."""
    for length in range(min(len(pattern), len(text) + 1)):
        start = len(text) - length
        if text.startswith(pattern[:length], start):
            first = beginning(pattern)
            if is_boundary(last_character(text[:start]), first):
                yield length


def _occurrences(text: bytes, pattern: bytes) -> Iterator[int]:
    """The positions of a phrase in `text` as whole words; it may end at the end of the text."""
    place = text.find(pattern)
    while place >= 0:
        before, after = text[:place], text[place + len(pattern) :]
        starts = is_boundary(last_character(before), beginning(pattern))
        if starts and is_boundary(last_character(pattern), beginning(after)):
            yield place
        place = text.find(pattern, place + 1)


def _other_case(text: str) -> str:
    first = text[0]
    return (first.lower() if first != first.lower() else first.upper()) + text[1:]


def last_character(text: bytes) -> str:
    return text[-_LONGEST_CHARACTER:].decode(errors="replace")[-1:]


def beginning(text: bytes) -> str:
    """As much of the beginning of a text as can decide whether it continues a word."""
    return text[: _LONGEST_CHARACTER * 16].decode(errors="replace")
