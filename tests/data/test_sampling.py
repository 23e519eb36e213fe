"""Shares of several corpora, and that over the epochs no pair of a corpus is used more than once more than another."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from nmt.data import sampler as sampling_module
from nmt.data.corpus import Part
from nmt.data.sampler import PairOrder, sampling_shares
from nmt.errors import DataError

NAMES = ["big", "small"]


def test_temperature_and_weights_decide_the_shares() -> None:
    assert sampling_shares([900, 100], NAMES) == pytest.approx([0.9, 0.1])
    assert sampling_shares([900, 100], NAMES, temperature=2.0) == pytest.approx([0.75, 0.25])
    assert sampling_shares([900, 100], NAMES, temperature=1e9) == pytest.approx([0.5, 0.5])
    assert sampling_shares([10**9, 1], NAMES, temperature=1e-3) == pytest.approx([1, 0])
    assert sampling_shares([900, 100], NAMES, weights=[1, 3]) == pytest.approx([0.25, 0.75])
    with pytest.raises(DataError, match=r"^data\.train: no pair of small was kept, so it cannot be sampled"):
        sampling_shares([900, 0], NAMES, temperature=2.0)


def taken(order: PairOrder, epoch: int) -> np.ndarray:
    return order.rows(epoch, 0, order.units)


def test_without_shares_an_epoch_is_each_pair_once() -> None:
    order = PairOrder([Part(70, 0), Part(30, 0)], seed=4)
    for epoch in (0, 1, 5):
        assert sorted(taken(order, epoch).tolist()) == list(range(100))
    assert taken(order, 0).tolist() != taken(order, 1).tolist()
    assert order.uses() == [1.0]


@pytest.mark.parametrize("large", [10**9, 10])
def test_pairs_of_a_corpus_are_used_equally_often_over_the_epochs(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr(sampling_module, "LARGE", large)
    parts = [Part(900 * 64, 0), Part(100 * 64, 0)]
    order = PairOrder(parts, shares=[0.55, 0.45], seed=4)
    assert order.unit_pairs == (64 if large == 10 else 1)
    counts: Counter[int] = Counter()
    for epoch in range(3):
        rows = taken(order, epoch)
        assert len(rows) == 1000 * 64
        small = np.count_nonzero(rows >= parts[0].pairs)
        assert small == 450 * 64
        counts.update(rows.tolist())
    big = [counts[row] for row in range(parts[0].pairs)]
    small_uses = [counts[row] for row in range(parts[0].pairs, 1000 * 64)]
    assert (min(big), max(big)) == (1, 2) and sum(big) == 3 * 550 * 64
    assert (min(small_uses), max(small_uses)) == (13, 14)
    assert order.uses() == pytest.approx([550 / 900, 4.5])


def test_any_piece_is_what_the_whole_has_there() -> None:
    order = PairOrder([Part(50, 0), Part(7, 0)], shares=[0.5, 0.5], seed=1)
    whole = taken(order, 6).tolist()
    assert order.rows(6, 20, 31).tolist() == whole[20:31]


def test_both_corpora_are_found_all_over_an_epoch() -> None:
    order = PairOrder([Part(5000, 0), Part(5000, 0)], shares=[0.5, 0.5], seed=1)
    for piece in np.split(taken(order, 0), 10):
        assert 400 < np.count_nonzero(piece < 5000) < 600


def test_runs_end_where_the_corpus_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_module, "LARGE", 10)
    order = PairOrder([Part(100, 0), Part(65, 0)], shares=[0.5, 0.5], seed=1)
    rows = Counter(taken(order, 0).tolist())
    assert max(rows) == 164 and min(rows) == 0
    one = PairOrder([Part(100, 0), Part(65, 0)], seed=1)
    assert sorted(taken(one, 0).tolist()) == list(range(165))
