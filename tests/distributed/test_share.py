"""The shares of an update: every sentence once, as even as sentences allow, whole batches where that costs little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.training.distributed import Share

COSTS = st.lists(st.lists(st.integers(2, 200), min_size=1, max_size=30), min_size=1, max_size=12)


@given(COSTS, st.integers(1, 9))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_every_sentence_is_in_exactly_one_share_in_order(costs: list[list[int]], size: int) -> None:
    arrays = [np.array(batch) for batch in costs]
    parts = [part for rank in range(size) for part in Share(rank, size).parts(arrays)]
    rows = [(part.batch, row) for part in parts for row in range(part.first, part.end)]
    assert rows == [(batch, row) for batch, sentences in enumerate(costs) for row in range(len(sentences))]
    # A share exceeds the even one by the way to a batch's end, or half a sentence, at both of its ends.
    even = sum(map(sum, costs)) / size
    most = max(max(batch) for batch in costs)
    for rank in range(size):
        mine = sum(int(arrays[p.batch][p.first : p.end].sum()) for p in Share(rank, size).parts(arrays))
        assert mine <= even + 2 * max(0.25 * even, most / 2) + 1e-6


def test_batches_stay_whole_when_there_are_as_many_as_processes() -> None:
    costs = [np.full(rows, 10) for rows in (30, 33, 28, 31)]
    for rank in range(4):
        assert Share(rank, 4).parts(costs) == [(rank, 0, len(costs[rank]))]
    assert [len(Share(rank, 2).parts(costs)) for rank in range(2)] == [2, 2]


def test_one_batch_is_cut_by_tokens_not_by_sentences() -> None:
    costs = [np.array([30, 10, 10, 10])]
    assert [Share(rank, 2).parts(costs) for rank in range(2)] == [[(0, 0, 1)], [(0, 1, 4)]]


def test_with_fewer_sentences_than_processes_some_have_none() -> None:
    parts = [Share(rank, 3).parts([np.array([7])]) for rank in range(3)]
    assert sorted(map(len, parts)) == [0, 0, 1]


def test_random_seeds_differ_by_rank_and_position_and_one_process_has_none() -> None:
    assert Share(0, 1).random_seed(1, 1, 5) is None
    seeds = {
        Share(rank, 2).random_seed(seed, epoch, batch)
        for rank in (0, 1) for seed in (1, 2**63 - 1) for epoch in (1, 2) for batch in (0, 4)
    }  # fmt: skip
    assert len(seeds) == 16
    assert all(seed is not None and 0 <= seed < 2**63 for seed in seeds)
    assert Share(1, 2).random_seed(1, 2, 3) == Share(1, 3).random_seed(1, 2, 3)


@pytest.mark.parametrize("size", [1, 2])
def test_shares_are_a_pure_function(size: int) -> None:
    costs = [np.arange(3, 40), np.arange(5, 25)]
    assert Share(0, size).parts(costs) == Share(0, size).parts(costs)
