"""Phrases that a translation must contain, and how far a hypothesis has come with each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from nmt.data.matching import is_boundary
from nmt.search.forbidden import beginning, last_character
from nmt.search.ruled import Step

MET: Final = -1
"""The phrase is complete, and the following text does not extend its last word."""
BLOCKED: Final = -2
"""Nothing of the phrase is present, and it cannot begin with the next token, which would extend a word."""


@dataclass(frozen=True)
class Required:
    """What the translations of a batch must contain, in words as the search calls them (ids or places in a list)."""

    phrases: Sequence[Sequence[tuple[int, ...]]]
    """The phrases of each sentence [B]; a repeated phrase counts once."""
    joins_left: Tensor
    """Whether each word begins with a letter that a letter before it makes part of a longer word [V]."""
    joins_right: Tensor
    """Whether it ends with such a letter [V]."""


class Phrase:
    """One phrase of n tokens as an automaton over the tokens of a hypothesis.

    A state is the number of its tokens, 0 to n, that the hypothesis ends with, or MET or BLOCKED. A phrase is met when
    it is followed by a token that begins another word, or by the end; it may overlap with others.
    """

    def __init__(self, tokens: Sequence[int], joins_left: Sequence[int], joins_right: Sequence[int]) -> None:
        self.tokens = tuple(tokens)
        self._joins_left, self._joins_right = joins_left, joins_right
        self.first_joins = bool(joins_left[self.tokens[0]])
        self.last_joins = bool(joins_right[self.tokens[-1]])

    def may_end_before(self, token: int) -> bool:
        """Whether the phrase is whole if `token` follows."""
        return not (self.last_joins and self._joins_left[token])

    def may_begin_after(self, token: int) -> bool:
        """Whether the phrase begins a word after `token`."""
        return not (self.first_joins and self._joins_right[token])

    def is_there(self, state: int) -> bool:
        """Whether a translation that ends here contains the phrase."""
        return state in (MET, len(self.tokens))

    def next_token(self, state: int) -> int | None:
        """The token that brings a hypothesis one step further; None where there is none."""
        return None if state in (MET, BLOCKED, len(self.tokens)) else self.tokens[state]

    def advanced(self, state: int, token: int) -> int:
        """The state after one more token."""
        if state == MET or (state == len(self.tokens) and self.may_end_before(token)):
            return MET
        text = (*self.tokens[: max(state, 0)], token)
        longest = len(text) if state != BLOCKED else 0
        for length in range(min(longest, len(self.tokens)), 0, -1):
            # Where all of `text` is taken, the phrase has begun before it, or may begin with it.
            begins = length == len(text) or self.may_begin_after(text[-length - 1])
            if begins and text[-length:] == self.tokens[:length]:
                return length
        return 0 if self.may_begin_after(token) else BLOCKED


def bank_of(phrases: Sequence[Phrase], states: Sequence[int]) -> tuple[int, int, bool]:
    """Progress of a hypothesis with all its phrases; larger is further.

    The tokens of the phrases met and of the one begun that has come furthest; then those of the phrases met alone; then
    whether one can begin. As long as a phrase is missing, some next token leads further: the next one of the phrase
    that has come furthest, one that begins another word after a phrase, or the first one of a phrase. So as many
    tokens as all phrases have, and one for each of them, are enough from anywhere.
    """
    met = sum(len(phrase.tokens) for phrase, state in zip(phrases, states, strict=True) if state == MET)
    open_states = [state for state in states if state != MET]
    begun = max([0, *open_states])
    return met + begun, met, not open_states or max(open_states) != BLOCKED


def joining(pieces: Sequence[bytes]) -> tuple[Tensor, Tensor]:
    """`joins_left` and `joins_right` of `Required`, from what each word of a vocabulary adds to a text, in UTF-8.

    A part of a character counts as a letter: it may become one.
    """

    firsts, lasts = [beginning(piece) for piece in pieces], [last_character(piece) for piece in pieces]
    left = [bool(text) and (text[0] == "\ufffd" or not is_boundary("a", text)) for text in firsts]
    right = [bool(text) and (text == "\ufffd" or not is_boundary(text, "a")) for text in lasts]
    return torch.tensor(left, dtype=torch.bool), torch.tensor(right, dtype=torch.bool)


class RequiredDespiteRepeats:
    """The rule that a phrase may be started and continued even if that repeats an n-gram, until it is complete."""

    def __init__(self, phrases: Sequence[Sequence[tuple[int, ...]]]) -> None:
        """`phrases`: of each sentence of the batch, in words as the search calls them."""
        self._phrases = phrases

    def __call__(self, log_probs: Tensor, step: Step, *, original: Tensor) -> None:
        for row, (line, history) in enumerate(zip(step.lines.tolist(), step.history.tolist(), strict=True)):
            for phrase in self._phrases[line]:
                size, words = len(phrase), tuple(history)
                if any(words[start : start + size] == phrase for start in range(len(words) - size + 1)):
                    continue
                for length in range(size):
                    if not length or words[-length:] == phrase[:length]:
                        log_probs[row, phrase[length]] = original[row, phrase[length]]
