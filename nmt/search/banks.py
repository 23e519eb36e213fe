"""One sentence of a search with required phrases: its hypotheses, and how they share the beam."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nmt.data.vocabulary import EOS
from nmt.search.hypothesis import Hypothesis, cut, penalty_of
from nmt.search.required import Phrase, bank_of

Bank = tuple[int, int, bool]


class Alive(NamedTuple):
    """An unfinished hypothesis; `total` is its log-probability, `states` how far it has come with each phrase."""

    total: float
    ids: tuple[int, ...]
    states: tuple[int, ...]


class Finished(NamedTuple):
    """A finished one with its length-penalised score."""

    score: float
    ids: tuple[int, ...]


class Candidate(NamedTuple):
    """A continuation of the hypothesis in slot `parent`."""

    total: float
    parent: int
    token: int


@dataclass
class Sentence:
    """The search of one sentence."""

    place: int
    """In the batch."""
    limit: int
    """Longest translation in tokens."""
    phrases: list[Phrase]
    alive: list[Alive] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    active: bool = True

    def is_done(self, t: int, *, alpha: float, n_best: int) -> bool:
        """Whether no further step is needed after t: as in `beam_search`, but with phrases n_best must have finished.

        At first few hypotheses have their phrases, and the others continue.
        """
        if t >= self.limit or not self.alive:
            return True
        best_possible = max(one.total for one in self.alive) / penalty_of(self.limit, alpha)
        wanted = [self.finished[-1].score] if self.finished and not self.phrases else []
        if len(self.finished) >= n_best:
            wanted.append(self.finished[n_best - 1].score)
        return any(score > best_possible for score in wanted)

    def is_complete(self, states: Sequence[int]) -> bool:
        """Whether a translation may end in these states."""
        return all(phrase.is_there(state) for phrase, state in zip(self.phrases, states, strict=True))

    def totals(self, slots: int) -> list[float]:
        """Log-probabilities of the alive hypotheses, -infinity for an empty slot."""
        return [one.total for one in self.alive] + [-math.inf] * (slots - len(self.alive))

    def last_tokens(self, slots: int) -> list[int]:
        """Their last tokens."""
        return [one.ids[-1] for one in self.alive] + [EOS] * (slots - len(self.alive))

    def advance(
        self, candidates: Sequence[Candidate], extras: Sequence[float], *, width: int, penalty: float
    ) -> list[int]:
        """Take in the candidates of a step; returns for each slot [K] which hypothesis it continues.

        `extras` are added to the scores of the hypotheses that end.
        """
        if not self.active:
            self.alive = []
            return [0] * width
        going_on: list[tuple[Bank, Alive, int]] = []
        for total, parent, token in sorted(candidates, key=lambda one: (-one.total, one.parent, one.token)):
            before = self.alive[parent]
            if token == EOS:
                self.finished.append(Finished(total / penalty + extras[parent], (*before.ids, EOS)))
                continue
            states = tuple(
                phrase.advanced(state, token) for phrase, state in zip(self.phrases, before.states, strict=True)
            )
            going_on.append((bank_of(self.phrases, states), Alive(total, (*before.ids, token), states), parent))
        self.finished = sorted(self.finished, key=lambda one: -one.score)[:width]
        chosen = sorted(_shared(going_on, width), key=lambda one: -one[1].total)
        self.alive = [alive for _, alive, _ in chosen]
        return [parent for *_, parent in chosen] + [0] * (width - len(chosen))

    def found(self, t: int, *, alpha: float, extras: Sequence[float]) -> list[Hypothesis]:
        """Its hypotheses, best first: finished ones, else those cut by the limit, the most complete first."""
        if self.finished:
            return [Hypothesis(cut(list(one.ids)), one.score) for one in self.finished]
        penalty = penalty_of(t, alpha)
        cut_off = [
            (bank_of(self.phrases, one.states), one.total / penalty + extra, one.ids)
            for one, extra in zip(self.alive, extras, strict=False)
        ]
        cut_off.sort(key=lambda item: item[:2], reverse=True)
        return [Hypothesis(list(ids), score, has_ended=False) for _, score, ids in cut_off] or [
            Hypothesis([], -math.inf, has_ended=False, is_finite=False)
        ]


def _shared(candidates: Sequence[tuple[Bank, Alive, int]], width: int) -> list[tuple[Bank, Alive, int]]:
    """Which candidates, best first, get the slots: round by round one of each bank, the furthest of all first."""
    banks: dict[Bank, list[tuple[Bank, Alive, int]]] = {}
    for candidate in candidates:
        banks.setdefault(candidate[0], []).append(candidate)
    ordered = [banks[bank] for bank in sorted(banks, reverse=True)]
    chosen: list[tuple[Bank, Alive, int]] = []
    for turn in itertools.count():
        of_turn = [bank[turn] for bank in ordered if len(bank) > turn]
        first = of_turn[:1] if not turn else []
        rest = sorted(of_turn[len(first) :], key=lambda candidate: -candidate[1].total)
        chosen += [*first, *rest][: width - len(chosen)]
        if len(chosen) == width or not of_turn:
            return chosen
    raise AssertionError("every bank has an end")
