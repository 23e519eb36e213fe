"""Rules on the next word: each against a search of all sequences that keep to it, in batches, lists and ensembles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from nmt.ops.matrices.best_words import Choice
from nmt.search import Hypothesis
from nmt.search.constraints import ForcedPrefix
from nmt.search.ensemble import Ensemble
from nmt.search.ruled import MinimumLength, NoRepeatedNgrams, RepeatPenalty, Rule, RuledModel
from nmt.search.shortlist import BatchWords, RestrictedModel
from nmt.zero.search import beam_search, greedy_search
from tests.search.naive import cut, log_probabilities, strip
from tests.search.table_model import EOS, PAD, TableModel, random_sources
from tests.search.test_ensemble import NumpyEnsemble, Table, make_model

V = 6
WIDE = {"beam_size": 400, "length_penalty": 0.7}
SOURCE = torch.tensor([[3, 4, EOS]])
ALLOWED = Callable[[list[int]], bool]
"""Whether a hypothesis, with its end symbol if it has one, may be so far."""


def all_of(
    model: Any,
    source: list[int],
    allowed: ALLOWED,
    *,
    limit: int,
    alpha: float = 0.7,
    next_word: Callable[[list[int]], list[float]] | None = None,
    given: Sequence[Sequence[int]] = (),
) -> list[tuple[float, list[int]]]:
    """All sequences of 2 to `limit` tokens that end with EOS and keep to a rule, best first. Of the first tokens the
    best of those `given` counts as the most probable of all."""
    found: list[tuple[float, list[int]]] = []
    stack: list[tuple[float, list[int]]] = [(0.0, [])]
    while stack:
        total, ids = stack.pop()
        values = log_probabilities(model, source, ids, zeros=[0]) if next_word is None else next_word(ids)
        if len(ids) < len(given):
            raised = max(values) - max(values[token] for token in given[len(ids)])
            values = [value + raised for value in values]
        for token, value in enumerate(values):
            longer = [*ids, token]
            if token == PAD or not allowed(longer) or (token == EOS and not ids):
                continue
            if token == EOS:
                found.append(((total + value) / ((5 + len(longer)) / 6) ** alpha, longer))
            elif len(longer) < limit:
                stack.append((total + value, longer))
    return sorted(found, key=lambda item: -item[0])


def at_least(tokens: int) -> ALLOWED:
    return lambda ids: ids[-1] != EOS or len(ids) > tokens


def no_repeat(n: int) -> ALLOWED:
    def allowed(ids: list[int]) -> bool:
        ngrams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
        return len(ngrams) == len(set(ngrams))

    return allowed


def begins(prefix: list[int]) -> ALLOWED:
    return lambda ids: ids[: len(prefix)] == prefix[: len(ids)]


def forced(prefix: Sequence[int]) -> Rule:
    return ForcedPrefix([prefix], device=torch.device("cpu"))


CASES: list[tuple[list[Rule], ALLOWED]] = [
    ([MinimumLength(3)], at_least(3)),
    ([NoRepeatedNgrams(1)], no_repeat(1)),
    ([NoRepeatedNgrams(2)], no_repeat(2)),
    ([forced([4, 4, 3])], begins([4, 4, 3])),
    ([MinimumLength(4), NoRepeatedNgrams(2)], lambda ids: at_least(4)(ids) and no_repeat(2)(ids)),
]


GIVEN = {3: [[4], [4], [3]]}
"""The prefixes of these cases."""


def assert_best(found: list[Hypothesis], expected: list[tuple[float, list[int]]], *, n: int = 5) -> None:
    assert [one.ids for one in found[:n]] == [cut(ids) for _, ids in expected[:n]]
    assert [one.score for one in found[:n]] == pytest.approx([score for score, _ in expected[:n]], abs=1e-10)


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("seed", range(2))
def test_the_widest_beam_is_the_exhaustive_search(case: int, seed: int) -> None:
    rules, allowed = CASES[case]
    model = TableModel(seed, vocabulary=V, eos=-1.0)
    expected = all_of(model, [3, 4, EOS], allowed, limit=5, given=GIVEN.get(case, ()))
    found = beam_search(RuledModel(model, rules=rules), SOURCE, max_length_offset=2, n_best=40, **WIDE)[0]
    finished = [one for one in found if one.has_ended]
    assert_best(finished, expected, n=len(finished))
    assert finished and found[0] == finished[0]
    free = beam_search(model, SOURCE, max_length_offset=2, n_best=40, **WIDE)[0]
    assert [one.ids for one in free] != [one.ids for one in found], "the rule does something here"


@pytest.mark.parametrize("case", range(len(CASES)))
def test_an_ensemble_keeps_to_rules(case: int) -> None:
    rules, allowed = CASES[case]
    tables = [Table(seed, vocabulary=V, eos=-1.0) for seed in (3, 4)]
    expected = all_of(NumpyEnsemble(tables), [3, 4, EOS], allowed, limit=6, given=GIVEN.get(case, ()))
    found = beam_search(RuledModel(Ensemble(tables), rules=rules), SOURCE, max_length_offset=3, n_best=1, **WIDE)[0]
    assert_best(found, expected, n=1)


def test_a_list_of_words_keeps_to_rules() -> None:
    """Places stand for ids; the rules of this test know of none."""
    torch.manual_seed(1)
    model = make_model("gru", 1)
    ids = torch.tensor([0, 1, 2, 5, 7, 11, 13])
    words = BatchWords(ids, torch.zeros(1, len(ids), dtype=torch.bool))
    listed = set(ids.tolist())
    oracle = NumpyEnsemble([model], forbidden=[i for i in range(model.target_vocab_size) if i not in listed])
    rule = no_repeat(1)
    expected = all_of(oracle, [3, 4, EOS], lambda found: found[-1] in listed and rule(found), limit=5)
    with torch.inference_mode():
        restricted = RestrictedModel(model, words)
        ruled = RuledModel(restricted, rules=[NoRepeatedNgrams(1)], words=restricted.ids)
        found = restricted.with_ids(beam_search(ruled, SOURCE, max_length_offset=2, n_best=1, **WIDE))[0]
    assert_best(found, expected, n=1)


class Penalised(TableModel):
    """Its logits are those after the repetition penalty of CTranslate2 and transformers, written as a loop."""

    so_far: Sequence[int] = ()

    def next_logits(self, source: list[int], history: list[int | None]) -> torch.Tensor:
        logits = super().next_logits(source, history).clone()
        for token in set(self.so_far):
            logits[token] = logits[token] * 1.6 if logits[token] < 0 else logits[token] / 1.6
        return logits


@pytest.mark.parametrize("seed", range(3))
def test_repeated_tokens_have_their_logits_divided_or_multiplied(seed: int) -> None:
    plain, penalised = TableModel(seed, vocabulary=V, eos=-1.0), Penalised(seed, vocabulary=V, eos=-1.0)
    adjusted = RuledModel(plain, adjustments=[RepeatPenalty(1.6)])

    def next_word(ids: list[int]) -> list[float]:
        penalised.so_far = ids
        return log_probabilities(penalised, [3, 4, EOS], ids, zeros=[0])

    followed, total = list[int](), 0.0
    while EOS not in followed and len(followed) < 8:
        values = [-math.inf if token == PAD else value for token, value in enumerate(next_word(followed))]
        values[EOS] -= 0 if followed else 1e8
        followed.append(max(range(V), key=values.__getitem__))
        total += values[followed[-1]]
    (found,) = greedy_search(adjusted, SOURCE, max_length_offset=5, length_penalty=0.0)[0]
    assert found.ids == cut(followed) and found.score == pytest.approx(total, abs=1e-10)

    expected = all_of(plain, [3, 4, EOS], lambda _: True, limit=5, next_word=next_word)
    beam = beam_search(adjusted, SOURCE, max_length_offset=2, n_best=40, **WIDE)[0]
    finished = [one for one in beam if one.has_ended]
    assert_best(finished, expected, n=len(finished))
    free = beam_search(plain, SOURCE, max_length_offset=2, n_best=40, **WIDE)[0]
    assert [one.ids for one in free] != [one.ids for one in beam], "the penalty does something here"


@pytest.mark.parametrize("search", [beam_search, greedy_search])
def test_companions_do_not_matter(search: Any) -> None:
    """Each sentence has a prefix of its own, sentences leave the batch at different steps, rows change places."""
    size = 3 if search is beam_search else 1
    model = TableModel(7, vocabulary=14, eos=1.5)
    source = random_sources(7, sentences=30, longest=7, vocabulary=14)
    generator = torch.Generator().manual_seed(8)
    lengths = torch.randint(0, 9, (30,), generator=generator).tolist()
    prefixes = [torch.randint(3, 14, (length,), generator=generator).tolist() for length in lengths]
    options = {"beam_size": size, "length_penalty": 0.6, "max_length_offset": 8}

    def run(rows: slice) -> list[list[Hypothesis]]:
        rules = [MinimumLength(3), NoRepeatedNgrams(2), ForcedPrefix(prefixes[rows], device=torch.device("cpu"))]
        return search(RuledModel(model, rules=rules), source[rows], **options)

    together = run(slice(0, 30))
    assert together == [run(slice(row, row + 1))[0] for row in range(30)]
    for found, prefix in zip(together, prefixes, strict=True):
        for one in found:
            assert one.ids[: len(prefix)] == prefix
            assert len(one.ids) >= 3
            ngrams = list(zip(one.ids, one.ids[1:], strict=False))[max(0, len(prefix) - 1) :]
            assert len(ngrams) == len(set(ngrams))


def test_scores_are_the_models_own() -> None:
    """Nothing is normalised anew. Tokens of a prefix have the probability of the most probable ones."""
    model = TableModel(5, vocabulary=9, eos=1.0)
    rules = [MinimumLength(2), NoRepeatedNgrams(2), forced([7, 8])]
    options = {"beam_size": 4, "length_penalty": 0.6, "max_length_offset": 4}
    for one in beam_search(RuledModel(model, rules=rules), SOURCE, **options)[0]:
        ids = [*one.ids, EOS] if one.has_ended else one.ids
        values = [log_probabilities(model, [3, 4, EOS], ids[:t], zeros=[0]) for t in range(len(ids))]
        total = sum(max(own) if t < 2 else own[token] for t, (own, token) in enumerate(zip(values, ids, strict=True)))
        assert max(values[1]) > values[1][ids[1]]
        assert one.score == pytest.approx(total / ((5 + len(ids)) / 6) ** 0.6, abs=1e-10)


def test_a_prefix_may_repeat_what_other_rules_forbid() -> None:
    model = TableModel(5, vocabulary=9)
    rules = [NoRepeatedNgrams(1), forced([7, 7, 7])]
    (found,) = greedy_search(RuledModel(model, rules=rules), SOURCE, length_penalty=0.6, max_length_offset=4)[0]
    assert found.ids[:3] == [7, 7, 7]
    assert 7 not in found.ids[3:] and len(set(found.ids[3:])) == len(found.ids[3:])


def test_without_rules_the_models_own_step_runs() -> None:
    class Watched(TableModel):
        asked = 0

        def best(self, tokens: Any, state: Any, choice: Choice) -> Any:
            self.asked += 1
            return super().best(tokens, state, choice)

    model = Watched(0, vocabulary=8)
    source = random_sources(0, sentences=6, longest=5, vocabulary=8)
    options = {"beam_size": 3, "length_penalty": 0.6, "max_length_offset": 4}
    assert beam_search(RuledModel(model), source, **options) == beam_search(model, source, **options)
    steps = model.asked
    beam_search(RuledModel(model, rules=[MinimumLength(2)]), source, **options)
    assert model.asked == steps > 0


def test_where_nothing_is_left_there_is_no_translation() -> None:
    model = TableModel(0, vocabulary=5)
    rules = [MinimumLength(9), NoRepeatedNgrams(1)]  # there are three other words
    (found,) = beam_search(
        RuledModel(model, rules=rules), SOURCE, beam_size=2, length_penalty=0.6, max_length_offset=9
    )[0]
    assert not found.is_finite and found.score == -math.inf


def test_the_step_of_ruled_models_is_normalised() -> None:
    model = TableModel(2, vocabulary=8)
    ruled = RuledModel(model, rules=[MinimumLength(1)])
    log_probs, _ = ruled.step(None, ruled.start(SOURCE))
    plain, _ = RuledModel(model).step(None, model.start(SOURCE))
    assert float(plain.exp().sum()) == pytest.approx(1.0)
    assert log_probs[0, EOS] == -math.inf
    plain[0, EOS] = -math.inf
    assert torch.equal(log_probs, plain)
    assert strip(SOURCE) == [[3, 4, EOS]]
