"""Beam search with required phrases against exhaustive search, without phrases against beam search, and its promise."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.ops.matrices.best_words import log_probabilities
from nmt.required_phrases import search as module
from nmt.required_phrases.search import BLOCKED, MET, Phrase
from nmt.search import Hypothesis
from nmt.search.base import Required, Settings
from nmt.zero.search import beam_search
from tests.search.naive import Scored
from tests.search.naive import log_probabilities as next_log_probabilities
from tests.search.table_model import EOS, PAD, TableModel, TableState, random_sources

Phrases = Sequence[Sequence[tuple[int, ...]]]


class Table(TableModel):
    """With log-probabilities of all words, as the model that a search is given."""

    def step(self, tokens: Tensor | None, state: TableState) -> tuple[Tensor, TableState]:
        logits, state = super().step(tokens, state)
        return log_probabilities(logits), state


def required(phrases: Phrases, *, left: Sequence[int] = (), right: Sequence[int] = (), vocabulary: int) -> Required:
    """Phrases of sentences; `left` and `right` are the words that a letter before or after them makes longer."""
    words = torch.arange(vocabulary)
    return Required(phrases, torch.isin(words, torch.tensor(left)), torch.isin(words, torch.tensor(right)))


def constrained_beam_search(model: Any, source: Tensor, wanted: Required, **settings: Any) -> list[list[Hypothesis]]:
    return module.constrained_beam_search(model, source, Settings(required=wanted, **settings))


def contains(ids: Sequence[int], phrase: Sequence[int], wanted: Required) -> bool:
    """Whether the phrase is there as words of its own."""
    ids, size = list(ids), len(phrase)
    left, right = wanted.joins_left.tolist(), wanted.joins_right.tolist()
    for start in range(len(ids) - size + 1):
        end = start + size
        whole = (start == 0 or not (right[ids[start - 1]] and left[phrase[0]])) and (
            end == len(ids) or not (right[phrase[-1]] and left[ids[end]])
        )
        if whole and ids[start:end] == list(phrase):
            return True
    return False


def exhaustive(model: TableModel, source: list[int], phrases: Sequence[tuple[int, ...]], wanted: Required, *,
               alpha: float, limit: int) -> Scored:  # fmt: skip
    """The best of all sequences of 2 to `limit` tokens that end with EOS, have no PAD and contain the phrases."""
    best: Scored = (-math.inf, [])
    stack: list[Scored] = [(0.0, [])]
    while stack:
        total, ids = stack.pop()
        for token, value in enumerate(next_log_probabilities(model, source, ids, zeros=[0])):
            if token == EOS and ids and all(contains(ids, phrase, wanted) for phrase in phrases):
                best = max(best, ((total + value) / ((6 + len(ids)) / 6) ** alpha, ids))
            elif token not in (PAD, EOS) and len(ids) + 1 < limit:
                stack.append((total + value, [*ids, token]))
    return best


CASES: list[tuple[list[tuple[int, ...]], list[int], list[int]]] = [
    ([(3,)], [], []),
    ([(3, 4)], [], []),
    ([(3,), (4,)], [], []),
    ([(3, 3)], [], []),
    ([(3,)], [4], [3]),  # 3 4 is one word
    ([(4,)], [4], [3]),
    ([(3, 4), (4,)], [4], [3, 4]),
    ([(3,), (3, 4)], [4], [3]),
]


@pytest.mark.parametrize(("phrases", "left", "right"), CASES)
def test_a_wide_beam_finds_the_best_of_all_sequences_with_the_phrases(
    phrases: list[tuple[int, ...]], left: list[int], right: list[int]
) -> None:
    model = Table(sum(map(len, phrases)), vocabulary=5)
    source = torch.tensor([[4, EOS]])
    wanted = required([phrases], left=left, right=right, vocabulary=5)
    limit = 2 + sum(len(phrase) + 1 for phrase in phrases)
    (found,) = constrained_beam_search(
        model, source, wanted, beam_size=3**limit, length_penalty=0.6, max_length_offset=0, n_best=1
    )
    score, ids = exhaustive(model, [4, EOS], phrases, wanted, alpha=0.6, limit=limit)
    assert found[0].ids == ids
    assert found[0].score == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("eos", [0.0, 9.0, -30.0])
def test_every_phrase_is_there_with_a_beam_of_any_size(beam_size: int, eos: float) -> None:
    """Phrases of few words that overlap and begin one another, where half of the words make others longer."""
    dice = random.Random(beam_size)
    model = Table(1, vocabulary=9, eos=eos)
    source = random_sources(1, sentences=20, longest=4, vocabulary=9)
    phrases = [
        [tuple(dice.choices(range(3, 7), k=dice.randint(1, 3))) for _ in range(dice.randint(0, 4))] for _ in source
    ]
    for left, right in (([], []), ([4, 6, 8], [3, 4, 7]), (list(range(3, 9)), [5, 6])):
        wanted = required(phrases, left=left, right=right, vocabulary=9)
        found = constrained_beam_search(
            model, source, wanted, beam_size=beam_size, length_penalty=0.6, max_length_offset=0, n_best=beam_size
        )
        for own, hypotheses in zip(phrases, found, strict=True):
            assert all(contains(hypotheses[0].ids, phrase, wanted) for phrase in own)
            if hypotheses[0].has_ended:
                assert all(contains(one.ids, phrase, wanted) for phrase in own for one in hypotheses)


def test_without_phrases_it_is_beam_search_whatever_is_beside_it() -> None:
    model = Table(4, vocabulary=11)
    source = random_sources(5, sentences=20, longest=6, vocabulary=11)
    settings: dict[str, Any] = {"beam_size": 4, "length_penalty": 0.6, "max_length_offset": 4, "n_best": 3}
    plain = beam_search(model, source, **settings)
    phrases: Phrases = [[(3, 5)] if place % 3 == 0 else [] for place in range(len(source))]
    found = constrained_beam_search(model, source, required(phrases, vocabulary=11), **settings)
    for place, (one, other) in enumerate(zip(found, plain, strict=True)):
        if place % 3:
            assert [h.ids for h in one] == [h.ids for h in other]
            assert [h.score for h in one] == pytest.approx([h.score for h in other], rel=1e-12)
            assert [h.has_ended for h in one] == [h.has_ended for h in other]


def test_a_sentence_gets_the_same_whatever_its_companions() -> None:
    model = Table(6, vocabulary=11)
    source = random_sources(7, sentences=20, longest=6, vocabulary=11)
    dice = random.Random(1)
    phrases = [[tuple(dice.choices(range(3, 11), k=2)) for _ in range(dice.randint(0, 2))] for _ in source]
    settings: dict[str, Any] = {"beam_size": 3, "length_penalty": 0.6, "max_length_offset": 4, "n_best": 3}

    def search(rows: list[int]) -> list[list[Hypothesis]]:
        wanted = required([phrases[row] for row in rows], vocabulary=11)
        return constrained_beam_search(model, source[rows], wanted, **settings)

    assert search(list(range(20))) == [search([row])[0] for row in range(20)]


def test_as_many_are_found_as_are_asked_for() -> None:
    model = Table(9, vocabulary=12, eos=2.0)
    source = random_sources(3, sentences=12, longest=5, vocabulary=12)
    wanted = required([[(4,), (7, 5)]] * 12, vocabulary=12)
    settings: dict[str, Any] = {"beam_size": 4, "length_penalty": 0.6, "max_length_offset": 8}
    four = constrained_beam_search(model, source, wanted, n_best=4, **settings)
    assert [len(found) for found in four] == [4] * 12
    best = constrained_beam_search(model, source, wanted, n_best=1, **settings)
    assert [found[0] for found in four] == [found[0] for found in best]


def test_a_wider_beam_finds_better_ones() -> None:
    model = Table(2, vocabulary=30)
    source = random_sources(2, sentences=16, longest=6, vocabulary=30)
    wanted = required([[(5, 6), (9,)]] * 16, vocabulary=30)
    scores = [
        sum(
            found[0].score
            for found in constrained_beam_search(
                model, source, wanted, beam_size=beam, length_penalty=0.6, max_length_offset=8, n_best=1
            )
        )
        for beam in (1, 4, 16)
    ]
    assert scores == sorted(scores)


def test_a_phrase_that_the_model_excludes_is_missing_and_the_limit_cuts() -> None:
    model = Table(3, vocabulary=8)
    model.table[:, 5] = -math.inf
    wanted = required([[(5,)]], vocabulary=8)
    (found,) = constrained_beam_search(
        model, torch.tensor([[3, EOS]]), wanted, beam_size=2, length_penalty=0.6, max_length_offset=1, n_best=2
    )
    assert found and not any(one.has_ended for one in found)
    assert {len(one.ids) for one in found} == {5}
    model.table.fill_(math.nan)
    (found,) = constrained_beam_search(
        model, torch.tensor([[3, EOS]]), wanted, beam_size=2, length_penalty=0.6, max_length_offset=1, n_best=2
    )
    assert [one.is_finite for one in found] == [False]


def test_nothing_to_translate() -> None:
    wanted = required([], vocabulary=8)
    empty = torch.empty(0, 3, dtype=torch.long)
    settings: dict[str, Any] = {"beam_size": 2, "length_penalty": 0.6, "max_length_offset": 1, "n_best": 2}
    assert constrained_beam_search(Table(3, vocabulary=8), empty, wanted, **settings) == []


def test_the_automaton_of_a_phrase_is_where_the_longest_beginning_is() -> None:
    left, right = [token in (4, 6) for token in range(8)], [token in (3, 4) for token in range(8)]
    for tokens in itertools.product(range(3, 6), repeat=3):
        phrase, state, text = Phrase(tokens, left, right), 0, []
        wanted = required([], left=[4, 6], right=[3, 4], vocabulary=8)
        dice = random.Random(sum(tokens))
        for _ in range(60):
            text.append(dice.choice([*tokens, 6, 7]))
            state = phrase.advanced(state, text[-1])
            assert phrase.is_there(state) == contains(text, tokens, wanted)
            assert (state == MET) == any(
                contains(text[: end + 1], tokens, wanted)
                and contains(text[:end], tokens, wanted)
                for end in range(len(text))
            )  # fmt: skip
            if not phrase.is_there(state):
                assert (state == BLOCKED) <= (not phrase.may_begin_after(text[-1]))
            if state == MET:
                state, text = 0, []
