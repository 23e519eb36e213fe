"""Diverse beam search against lists and loops, against beam search, and in batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from nmt.config import DecodingConfig
from nmt.errors import ConfigError
from nmt.sampling.diverse import diverse_beam_search
from nmt.search import Hypothesis
from nmt.search.base import build_search
from nmt.zero.search import beam_search
from tests.search.naive import Scored, cut, exhaustive, log_probabilities, strip
from tests.search.table_model import EOS, PAD, TableModel, random_sources

SETTINGS: dict[str, Any] = {"length_penalty": 0.6, "max_length_offset": 4}


def slow_diverse_beam_search(
    model: TableModel, source: list[int], *, groups: int, size: int, diversity: float, alpha: float, offset: int
) -> list[Scored]:
    """All finished hypotheses of the groups, each once, best first, or the cut ones where none has finished."""
    limit = len(source) + offset
    alive: list[list[Scored]] = [[(0.0, [])] for _ in range(groups)]
    finished: list[list[Scored]] = [[] for _ in range(groups)]

    def settled(group: int) -> bool:
        if not alive[group]:
            return True
        best = alive[group][0][0] / ((5 + limit) / 6) ** alpha
        return bool(finished[group]) and min(score for score, _ in finished[group]) > best

    t = 0
    while t < limit and not all(settled(group) for group in range(groups)):
        used: list[int] = []
        for group in range(groups):
            pool = []
            for beam, (total, ids) in enumerate(alive[group]):
                for token, value in enumerate(log_probabilities(model, source, ids, zeros=[0])):
                    if token == PAD:
                        continue
                    value = value - 1e8 if token == EOS and not t else value
                    taken = 0 if token == EOS else diversity * used.count(token)
                    pool.append((-(total + value - taken), -(total + value), beam, token, [*ids, token]))
            best = [(-value, ids) for _, value, _, _, ids in sorted(pool)[: 2 * size]]
            unfinished = [item for item in best if item[1][-1] != EOS][:size]
            alive[group] = sorted(unfinished, key=lambda item: -item[0])
            newly = [(total / ((5 + t + 1) / 6) ** alpha, ids) for total, ids in best if ids[-1] == EOS]
            finished[group] = sorted(finished[group] + newly, key=lambda item: -item[0])[:size]
            used += [ids[-1] for _, ids in alive[group]]
        t += 1
    found = [item for group in finished for item in group]
    if not found:
        found = [(total / ((5 + t) / 6) ** alpha, ids) for group in alive for total, ids in group]
    distinct = {tuple(ids): (score, ids) for score, ids in found}
    return sorted(distinct.values(), key=lambda item: -item[0])


def assert_same(found: list[Hypothesis], expected: list[Scored]) -> None:
    assert [one.ids for one in found] == [cut(ids) for _, ids in expected]
    for one, (score, _) in zip(found, expected, strict=True):
        assert one.score == pytest.approx(score, rel=1e-12)


@pytest.mark.parametrize(
    ("groups", "size", "diversity"), [(2, 1, 0.5), (2, 2, 0.7), (3, 2, 0.3), (4, 1, 5.0), (2, 3, 0.0)]
)
@pytest.mark.parametrize("eos", [0.0, -30.0])
def test_equals_lists_and_loops(groups: int, size: int, diversity: float, eos: float) -> None:
    model = TableModel(groups + size, vocabulary=9, eos=eos)
    source = random_sources(size, sentences=12, longest=5, vocabulary=9)
    found = diverse_beam_search(model, source, groups=groups, diversity=diversity, beam_size=groups * size, **SETTINGS)
    for row, hypotheses in zip(strip(source), found, strict=True):
        expected = slow_diverse_beam_search(
            model, row, groups=groups, size=size, diversity=diversity, alpha=0.6, offset=4
        )
        assert_same(hypotheses, expected)
        assert all(one.has_ended == (eos == 0.0) for one in hypotheses)


@pytest.mark.parametrize(("seed", "size", "eos"), [(2, 3, 2.5), (6, 2, 1.0)])
def test_a_group_goes_on_as_long_as_its_most_probable_hypothesis_could_win(seed: int, size: int, eos: float) -> None:
    """Which is not always the one that it has chosen first."""
    model = TableModel(seed, vocabulary=9, eos=eos)
    source = random_sources(seed, sentences=12, longest=5, vocabulary=9)
    found = diverse_beam_search(model, source, groups=2, diversity=2.0, beam_size=2 * size, **SETTINGS)
    for row, hypotheses in zip(strip(source), found, strict=True):
        expected = slow_diverse_beam_search(model, row, groups=2, size=size, diversity=2.0, alpha=0.6, offset=4)
        assert_same(hypotheses, expected)


def test_one_group_is_beam_search() -> None:
    model = TableModel(3, vocabulary=11, dtype=torch.float32)
    source = random_sources(1, sentences=20, longest=6, vocabulary=11)
    for n_best in (1, 3):
        settings = SETTINGS | {"beam_size": 4, "n_best": n_best}
        assert diverse_beam_search(model, source, groups=1, diversity=9.0, **settings) == beam_search(
            model, source, **settings
        )


def test_a_sentence_gets_the_same_whatever_its_companions() -> None:
    model = TableModel(5, vocabulary=9)
    source = random_sources(4, sentences=24, longest=6, vocabulary=9)
    settings = SETTINGS | {"groups": 2, "diversity": 0.8, "beam_size": 4, "n_best": 3}
    together = diverse_beam_search(model, source, **settings)
    alone = [diverse_beam_search(model, row.unsqueeze(0), **settings)[0] for row in source]
    assert together == alone


def test_the_n_best_are_the_first_of_all_and_differ() -> None:
    model = TableModel(6, vocabulary=9)
    source = random_sources(2, sentences=20, longest=5, vocabulary=9)
    settings = SETTINGS | {"groups": 3, "diversity": 0.4, "beam_size": 6}
    whole = diverse_beam_search(model, source, **settings)
    assert [found[:2] for found in whole] == diverse_beam_search(model, source, n_best=2, **settings)
    for found in whole:
        assert len({tuple(one.ids) for one in found}) == len(found)
    assert any(len(found) < 6 for found in whole), "groups that find the same give it once"


def test_a_wide_group_finds_the_best_of_all_sequences() -> None:
    model = TableModel(7, vocabulary=6, eos=0.5)
    source = torch.tensor([[3, 4, EOS]])
    (found,) = diverse_beam_search(
        model, source, groups=2, diversity=1.0, beam_size=2 * 4**3, length_penalty=0.6, max_length_offset=1
    )
    score, ids = exhaustive(model, [3, 4, EOS], alpha=0.6, limit=4)
    assert found[0].ids == cut(ids)
    assert found[0].score == pytest.approx(score, rel=1e-12)


def test_the_groups_say_other_things() -> None:
    model = TableModel(8, vocabulary=30, eos=4.0, spread=0.5)
    source = random_sources(3, sentences=30, longest=6, vocabulary=30)
    settings = SETTINGS | {"groups": 4, "beam_size": 4}

    def first_words(diversity: float) -> int:
        found = diverse_beam_search(model, source, diversity=diversity, **settings)
        return sum(len({one.ids[0] for one in hypotheses}) for hypotheses in found)

    assert first_words(0.0) == 30
    assert first_words(20.0) == 4 * 30


def test_without_finite_probabilities_there_is_one_that_says_so() -> None:
    model = TableModel(9, vocabulary=9)
    model.table.fill_(math.nan)
    (found,) = diverse_beam_search(model, torch.tensor([[3, EOS]]), groups=2, diversity=0.5, beam_size=4, **SETTINGS)
    assert len(found) == 1 and not found[0].is_finite


def test_groups_must_share_the_beam() -> None:
    settings = SETTINGS | {"diversity": 0.5, "beam_size": 4}
    assert diverse_beam_search(TableModel(1, vocabulary=5), torch.empty(0, 3).long(), groups=2, **settings) == []
    with pytest.raises(ConfigError, match="3 groups cannot share a beam of 4"):
        diverse_beam_search(TableModel(1, vocabulary=5), torch.tensor([[EOS]]), groups=3, **settings)
    with pytest.raises(ConfigError, match="decoding.beam_size: must be a multiple of the 3 groups of 'diverse_beam'"):
        build_search(DecodingConfig(search="diverse_beam", search_options={"groups": 3}))
    for options, message in (
        ({"groups": 0}, "groups: must be 1 or more"),
        ({"diversity": -1.0}, "diversity: must be 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            build_search(DecodingConfig(search="diverse_beam", search_options=options))
