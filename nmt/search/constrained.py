"""Beam search for translations that contain required phrases: the beam is shared among what has come equally far.

Dynamic beam allocation (Post and Vilar, NAACL 2018; Hu et al., NAACL 2019). B sentences, K hypotheses each, N = B * K
rows, V words, t tokens so far. What a hypothesis has of each phrase is kept in Python: a step looks at a few candidates
for each hypothesis, and what the model computes for it costs far more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.ops.matrices.best_words import Choice, best_words
from nmt.search.compaction import rows_to_keep
from nmt.search.coverage import CoveringModel
from nmt.search.hypothesis import FIRST_EOS_PENALTY, Hypothesis, cut, penalty_of
from nmt.search.required import BLOCKED, Phrase, Required, bank_of

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
        """Whether no further step is needed after t: as in `beam_search`, but with phrases not before n_best are there.

        Hypotheses that have their phrases are few at first, and those without go on.
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
        """Its hypotheses, best first: finished ones, else what the limit has cut, the furthest ones first."""
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


@torch.inference_mode()
def constrained_beam_search(
    model: Any,
    source: Tensor,
    required: Required,
    *,
    beam_size: int,
    length_penalty: float,
    max_length_offset: int,
    n_best: int,
    coverage_penalty: float = 0.0,
) -> list[list[Hypothesis]]:
    """Search the best translations of a batch that contain all required phrases of their sentences.

    A hypothesis ends only when it has all of them. The candidates of a step are the 2K best continuations, the 2 best
    of each hypothesis, and those that lead further with a phrase. They are put into banks by how far they have come
    (`bank_of`), and the K slots are given round by round: to the best of each bank, to the second best of each, and so
    on, by log-probability where a round does not fit. The furthest bank comes first, so that its best candidate always
    stays: with a beam of any size all phrases are there within as many tokens as they have, and one for each, and by so
    much the limit of a sentence is longer. Only where a rule of `model` excludes what would lead further can a
    phrase be missing; then the limit cuts what is furthest.

    Without phrases a sentence gets what `beam_search` finds. Scores and limits are those of `beam_search`, and so is
    stopping, but that with phrases n_best hypotheses must have finished, if the limit lets them.

    Args:
        model: has `start`, and `step` that gives log-probabilities, as `RuledModel` has.
        source, beam_size, length_penalty, max_length_offset, n_best, coverage_penalty: as in `beam_search`.
        required: the phrases.

    Returns:
        As `beam_search`.
    """
    width = beam_size
    results: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    if not results:
        return results
    sentences = _sentences(source, required, max_length_offset=max_length_offset)
    tokens: Tensor | None = None
    covered = CoveringModel(model, strength=coverage_penalty) if coverage_penalty else None
    model = model if covered is None else covered
    state: Any = model.start(source)
    for t in itertools.count():
        for sentence, extras in zip(sentences, _extras(covered, state, len(sentences), width), strict=True):
            if sentence.active and sentence.is_done(t, alpha=length_penalty, n_best=n_best):
                sentence.active = False
                results[sentence.place] = sentence.found(t, alpha=length_penalty, extras=extras)[:n_best]
        rows = rows_to_keep(torch.tensor([sentence.active for sentence in sentences], dtype=torch.bool))
        if rows is not None:
            if not len(rows):
                return results
            rows = rows.to(source.device)
            sentences, state = [sentences[row] for row in rows.tolist()], state.keep(rows)
        if t:
            tokens = torch.tensor([token for sentence in sentences for token in sentence.last_tokens(width)])
        log_probs, state = model.step(None if tokens is None else tokens.to(source), state)
        candidates = _candidates(log_probs, sentences, required, t, width=width)
        all_extras = _extras(covered, state, len(sentences), width)
        parents = [
            sentence.advance(found, extras, width=width, penalty=penalty_of(t + 1, length_penalty))
            for sentence, found, extras in zip(sentences, candidates, all_extras, strict=True)
        ]
        if t:
            order = torch.tensor([row * width + parent for row, own in enumerate(parents) for parent in own])
            state = state.reorder(order.to(source.device))
        else:
            state = state.expand(width)
    raise AssertionError("every sentence has a limit")


def _sentences(source: Tensor, required: Required, *, max_length_offset: int) -> list[Sentence]:
    """The searches of the sentences of a batch, each with one hypothesis of no tokens."""
    left, right = (
        edges.to(torch.uint8).cpu().numpy().tobytes() for edges in (required.joins_left, required.joins_right)
    )
    sentences = []
    for place, (length, wanted) in enumerate(zip((source != PAD).sum(1).tolist(), required.phrases, strict=True)):
        phrases = [Phrase(tokens, left, right) for tokens in dict.fromkeys(map(tuple, wanted))]
        limit = length + max_length_offset + sum(len(phrase.tokens) + 1 for phrase in phrases)
        start = Alive(0.0, (), (0,) * len(phrases))
        sentences.append(Sentence(place, limit, phrases, [start]))
    return sentences


def _extras(covered: CoveringModel[Any] | None, state: Any, sentences: int, width: int) -> list[list[float]]:
    """What is added to the score of each hypothesis [B, K] if it ends."""
    return [[0.0] * width] * sentences if covered is None else covered.penalties(state).tolist()


def _candidates(
    log_probs: Tensor, sentences: Sequence[Sentence], required: Required, t: int, *, width: int
) -> list[list[Candidate]]:
    """What the hypotheses of each sentence may go on with; `log_probs` [N, V] are overwritten."""
    slots = len(log_probs) // len(sentences)
    totals_before = [sentence.totals(slots) for sentence in sentences]
    before = torch.tensor(totals_before, dtype=log_probs.dtype, device=log_probs.device)  # [B, slots]
    log_probs[:, PAD] = -math.inf
    if not t:
        log_probs[:, EOS] -= FIRST_EOS_PENALTY
    places = [
        (row, slot, sentence, one)
        for row, sentence in enumerate(sentences)
        if sentence.phrases
        for slot, one in enumerate(sentence.alive)
    ]
    unfinished = [row * slots + slot for row, slot, sentence, one in places if not sentence.is_complete(one.states)]
    log_probs[unfinished, EOS] = -math.inf
    totals = log_probs + before.view(-1, 1)
    found: list[dict[tuple[int, int], float]] = [{} for _ in sentences]

    def add(rows: Iterable[int], words: Iterable[int], values: Iterable[float]) -> None:
        for row, word, value in zip(rows, words, values, strict=True):
            found[row // slots][row % slots, word] = value

    if places:
        constrained = torch.tensor([row * slots + slot for row, slot, *_ in places], device=log_probs.device)
        own = best_words(totals[constrained], Choice(2, normalize=False))
        for column in range(2):
            add(constrained.tolist(), own.words[:, column].tolist(), own.values[:, column].tolist())
        rows, words = _leading_further(places, slots)
        add(rows, words, totals[rows, words].tolist())
        for (left, right), rows in _needing_new_words(places, slots).items():
            excluded = (required.joins_left & left) | (required.joins_right & right)
            values, words_found = totals[rows].masked_fill(excluded, -math.inf).max(1)
            add(rows, words_found.tolist(), values.tolist())
    best = best_words(log_probs, Choice(2 * width, before=before, normalize=False))
    for row in range(len(sentences)):
        of_row = [row * slots + slot for slot in best.hypotheses[row].tolist()]
        add(of_row, best.words[row].tolist(), best.values[row].tolist())
    return [
        [Candidate(total, slot, word) for (slot, word), total in sentence.items() if math.isfinite(total)]
        for sentence in found
    ]


def _leading_further(places: Sequence[Any], slots: int) -> tuple[list[int], list[int]]:
    """Rows, and next tokens of phrases that they do not have yet, or the end where they have just got the last one."""
    pairs = []
    for row, slot, sentence, one in places:
        states = list(zip(sentence.phrases, one.states, strict=True))
        pairs += [
            (row * slots + slot, token) for phrase, state in states if (token := phrase.next_token(state)) is not None
        ]
        if sentence.is_complete(one.states) and any(state == len(phrase.tokens) for phrase, state in states):
            pairs.append((row * slots + slot, EOS))
    return [row for row, _ in pairs], [token for _, token in pairs]


def _needing_new_words(places: Sequence[Any], slots: int) -> dict[tuple[bool, bool], list[int]]:
    """Rows that need a token after which they are further, by what it must not do: join what is before or after it."""
    needing: dict[tuple[bool, bool], list[int]] = {}
    for row, slot, sentence, one in places:
        states = list(zip(sentence.phrases, one.states, strict=True))
        ended = any(phrase.last_joins and state == len(phrase.tokens) for phrase, state in states)
        missing = [(phrase, state) for phrase, state in states if not phrase.is_there(state)]
        if ended or (missing and all(state == BLOCKED for _, state in missing)):
            right = bool(missing) and all(phrase.first_joins for phrase, _ in missing)
            needing.setdefault((ended, right), []).append(row * slots + slot)
    return needing


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
