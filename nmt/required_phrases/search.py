"""Phrases that a translation must contain: beam search in which the beam is shared among what has come equally far.

Dynamic beam allocation (Post and Vilar, NAACL 2018; Hu et al., NAACL 2019). B sentences, K hypotheses each, N = B * K
rows, V words, t tokens so far. What a hypothesis has of each phrase is kept in Python: a step looks at a few candidates
for each hypothesis, and what the model computes for it costs far more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.ops.matrices.best_words import Choice, best_words
from nmt.registry import CONSTRAINED_SEARCHES
from nmt.search.base import Required, Settings, limits_of, rows_to_keep
from nmt.search.coverage import CoveringModel
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis

MET: Final = -1
"""The phrase is complete, and the following text does not extend its last word."""
BLOCKED: Final = -2
"""Nothing of the phrase is present, and it cannot begin with the next token, which would extend a word."""


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

    def may_begin_after(self, token: int) -> bool:
        """Whether the phrase begins a word after `token`."""
        return not (self.first_joins and self._joins_right[token])

    def is_there(self, state: int) -> bool:
        """Whether a translation that ends here contains the phrase."""
        return state in (MET, len(self.tokens))

    def advanced(self, state: int, token: int) -> int:
        """The state after one more token."""
        if state == MET or (state == len(self.tokens) and not (self.last_joins and self._joins_left[token])):
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


Bank = tuple[int, int, bool]


class Alive(NamedTuple):
    """An unfinished hypothesis; `total` is its log-probability, `states` how far it has come with each phrase."""

    total: float
    ids: tuple[int, ...]
    states: tuple[int, ...]


@dataclass
class Sentence:
    """The search of one sentence."""

    place: int
    """In the batch."""
    limit: int
    """Longest translation in tokens."""
    phrases: list[Phrase]
    alive: list[Alive]
    finished: list[Hypothesis] = field(default_factory=list)
    """With their length-penalised scores, best first."""
    active: bool = True

    def is_done(self, t: int, settings: Settings, *, n_best: int) -> bool:
        """Whether no further step is needed after t: as in `beam_search`, but with phrases n_best must have finished.

        At first few hypotheses have their phrases, and the others continue.
        """
        if t >= self.limit or not self.alive:
            return True
        best_possible = max(one.total for one in self.alive) / settings.penalty(self.limit)
        wanted = [self.finished[-1].score] if self.finished and not self.phrases else []
        if len(self.finished) >= n_best:
            wanted.append(self.finished[n_best - 1].score)
        return any(score > best_possible for score in wanted)

    def leading(self, states: Sequence[int]) -> tuple[list[int], tuple[bool, bool] | None]:
        """The tokens that lead a hypothesis further: the next ones of phrases that it does not have yet, or the end
        where it has just got the last one.

        And, where it needs a token that begins another word to get further, whether that must not join the text before
        it, and the text after it.
        """
        pairs = list(zip(self.phrases, states, strict=True))
        tokens = [phrase.tokens[state] for phrase, state in pairs if 0 <= state < len(phrase.tokens)]
        whole = [phrase for phrase, state in pairs if state == len(phrase.tokens)]
        missing = [(phrase, state) for phrase, state in pairs if not phrase.is_there(state)]
        if whole and not missing:
            tokens.append(EOS)
        ended = any(phrase.last_joins for phrase in whole)
        if not ended and (not missing or any(state != BLOCKED for _, state in missing)):
            return tokens, None
        return tokens, (ended, bool(missing) and all(phrase.first_joins for phrase, _ in missing))

    def advance(
        self, candidates: Mapping[tuple[int, int], float], extras: Sequence[float], *, width: int, penalty: float
    ) -> list[int]:
        """Take in the candidates of a step; returns for each slot [K] which hypothesis it continues.

        `candidates`: log-probabilities by the slot of the hypothesis that is continued, and by the token. `extras` are
        added to the scores of the hypotheses that end.
        """
        if not self.active:
            self.alive = []
            return [0] * width
        going_on: list[tuple[Bank, Alive, int]] = []
        for (parent, token), total in sorted(candidates.items(), key=lambda item: (-item[1], item[0])):
            before = self.alive[parent]
            if token == EOS:
                self.finished.append(Hypothesis(list(before.ids), total / penalty + extras[parent]))
                continue
            states = tuple(
                phrase.advanced(state, token) for phrase, state in zip(self.phrases, before.states, strict=True)
            )
            going_on.append((bank_of(self.phrases, states), Alive(total, (*before.ids, token), states), parent))
        self.finished = sorted(self.finished, key=lambda one: -one.score)[:width]
        chosen = sorted(_shared(going_on, width), key=lambda one: -one[1].total)
        self.alive = [alive for _, alive, _ in chosen]
        return [parent for *_, parent in chosen] + [0] * (width - len(chosen))

    def found(self, t: int, settings: Settings, *, extras: Sequence[float]) -> list[Hypothesis]:
        """Its hypotheses, best first: finished ones, else those cut by the limit, the most complete first."""
        if self.finished or not self.alive:
            return self.finished or [Hypothesis([], -math.inf, has_ended=False, is_finite=False)]
        penalty = settings.penalty(t)
        cut_off = [
            (bank_of(self.phrases, one.states), one.total / penalty + extra, one.ids)
            for one, extra in zip(self.alive, extras, strict=False)
        ]
        cut_off.sort(key=lambda item: item[:2], reverse=True)
        return [Hypothesis(list(ids), score, has_ended=False) for _, score, ids in cut_off]


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


@CONSTRAINED_SEARCHES.register("beam")
@torch.inference_mode()
def constrained_beam_search(model: Any, source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
    """Search the best translations of a batch that contain all required phrases of their sentences.

    A hypothesis may end only when it contains all of them. The candidates of a step are the 2K best continuations, the
    2 best of each hypothesis, and those that lead further with a phrase. They are put into banks by their progress with
    the phrases (`bank_of`), and the K slots are given in rounds: to the best of each bank, to the second best of each,
    and so on, by log-probability if a round does not fit. The most advanced bank comes first, so that its best
    candidate always stays: with a beam of any size, all phrases are complete within as many tokens as they have, plus
    one for each, and the limit of a sentence is longer by that number. A phrase can be missing only if a rule of
    `model` excludes the tokens that continue it; then the limit cuts the most advanced hypotheses.

    Without phrases a sentence gets what `beam_search` finds. Scores, limits and stopping are those of `beam_search`,
    except that with phrases n_best hypotheses must have finished, if the limit allows.

    Args:
        model: has `start`, and `step` that gives log-probabilities, as `RuledModel` has.
        source: as in `beam_search`.
        settings: with the phrases in `required`.

    Returns:
        As `beam_search`.
    """
    required, width = settings.required, settings.beam_size
    assert required is not None
    n_best = width if settings.n_best is None else settings.n_best
    results: list[list[Hypothesis]] = [[]] * len(source)
    if not results:
        return results
    sentences = _sentences(source, required, settings)
    tokens: Tensor | None = None
    none = [[0.0] * width] * len(sentences)
    covered = CoveringModel(model, strength=settings.coverage_penalty) if settings.coverage_penalty else None
    model = model if covered is None else covered
    state: Any = model.start(source)
    for t in itertools.count():
        # What is added to the score of each hypothesis if it ends.
        all_extras = none if covered is None else covered.penalties(state).tolist()
        for sentence, extras in zip(sentences, all_extras, strict=False):
            if sentence.active and sentence.is_done(t, settings, n_best=n_best):
                sentence.active = False
                results[sentence.place] = sentence.found(t, settings, extras=extras)[:n_best]
        rows = rows_to_keep(torch.tensor([sentence.active for sentence in sentences], dtype=torch.bool))
        if rows is not None:
            if not len(rows):
                return results
            rows = rows.to(source.device)
            sentences, state = [sentences[row] for row in rows.tolist()], state.keep(rows)
        if t:
            last = [[one.ids[-1] for one in own.alive] + [EOS] * (width - len(own.alive)) for own in sentences]
            tokens = torch.tensor(last).flatten().to(source)
        log_probs, state = model.step(tokens, state)
        candidates = _candidates(log_probs, sentences, required, t, width=width)
        all_extras = none if covered is None else covered.penalties(state).tolist()
        parents = [
            sentence.advance(found, extras, width=width, penalty=settings.penalty(t + 1))
            for sentence, found, extras in zip(sentences, candidates, all_extras, strict=False)
        ]
        if t:
            order = torch.tensor([row * width + parent for row, own in enumerate(parents) for parent in own])
            state = state.reorder(order.to(source.device))
        else:
            state = state.expand(width)
    raise AssertionError("every sentence has a limit")


def _sentences(source: Tensor, required: Required, settings: Settings) -> list[Sentence]:
    """The searches of the sentences of a batch, each with one hypothesis of no tokens."""
    left, right = (
        edges.to(torch.uint8).cpu().numpy().tobytes() for edges in (required.joins_left, required.joins_right)
    )
    sentences = []
    for place, (limit, wanted) in enumerate(zip(limits_of(source, settings).tolist(), required.phrases, strict=True)):
        phrases = [Phrase(tokens, left, right) for tokens in dict.fromkeys(map(tuple, wanted))]
        limit += sum(len(phrase.tokens) + 1 for phrase in phrases)
        start = Alive(0.0, (), (0,) * len(phrases))
        sentences.append(Sentence(place, limit, phrases, [start]))
    return sentences


def _candidates(
    log_probs: Tensor, sentences: Sequence[Sentence], required: Required, t: int, *, width: int
) -> list[dict[tuple[int, int], float]]:
    """For each sentence the log-probabilities of the candidates by the slot of a hypothesis and the next token.

    `log_probs` [N, V] is overwritten.
    """
    slots = len(log_probs) // len(sentences)
    totals_before = [[one.total for one in own.alive] + [-math.inf] * (slots - len(own.alive)) for own in sentences]
    before = torch.tensor(totals_before, dtype=log_probs.dtype, device=log_probs.device)  # [B, slots]
    log_probs[:, PAD] = -math.inf
    if not t:
        log_probs[:, EOS] -= FIRST_EOS_PENALTY
    constrained: list[int] = []
    unfinished: list[int] = []
    pairs: list[tuple[int, int]] = []  # rows, and tokens that lead them further
    needing: dict[tuple[bool, bool], list[int]] = {}  # rows that need a token that begins a word
    for place, sentence in enumerate(sentences):
        for row, one in enumerate(sentence.alive if sentence.phrases else (), place * slots):
            constrained.append(row)
            if not all(phrase.is_there(state) for phrase, state in zip(sentence.phrases, one.states, strict=True)):
                unfinished.append(row)
            tokens, joins = sentence.leading(one.states)
            pairs += [(row, token) for token in tokens]
            if joins is not None:
                needing.setdefault(joins, []).append(row)
    log_probs[unfinished, EOS] = -math.inf
    totals = log_probs + before.view(-1, 1)
    found: list[dict[tuple[int, int], float]] = [{} for _ in sentences]

    def add(rows: Iterable[int], words: Iterable[int], values: Iterable[float]) -> None:
        for row, word, value in zip(rows, words, values, strict=True):
            if math.isfinite(value):
                found[row // slots][row % slots, word] = value

    if constrained:
        own = best_words(totals[constrained], Choice(2, normalize=False))
        for column in range(2):
            add(constrained, own.words[:, column].tolist(), own.values[:, column].tolist())
        rows, words = [row for row, _ in pairs], [token for _, token in pairs]
        add(rows, words, totals[rows, words].tolist())
        for (left, right), rows in needing.items():
            excluded = (required.joins_left & left) | (required.joins_right & right)
            values, words_found = totals[rows].masked_fill(excluded, -math.inf).max(1)
            add(rows, words_found.tolist(), values.tolist())
    best = best_words(log_probs, Choice(2 * width, before=before, normalize=False))
    for place, hypotheses in enumerate(best.hypotheses.tolist()):
        rows = [place * slots + slot for slot in hypotheses]
        add(rows, best.words[place].tolist(), best.values[place].tolist())
    return found
