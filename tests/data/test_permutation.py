"""The permutation without a list: one-to-one, the same everywhere, and as mixed as a shuffled list."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.sampler import Permutation


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**63 - 1))
def test_every_number_is_met_once(size: int, key: int) -> None:
    found = Permutation(size, key, "x")(np.arange(size))
    assert sorted(found.tolist()) == list(range(size))


def test_it_depends_on_the_key_alone_and_is_the_same_everywhere() -> None:
    assert Permutation(10, 1, "epoch", 0)(np.arange(10)).tolist() == PINNED
    assert Permutation(10, 1, "epoch", 1)(np.arange(10)).tolist() != PINNED
    huge = Permutation(10**12, 5)
    assert huge(np.array([7, 10**12 - 1])).tolist() == [huge(np.array([i])).tolist()[0] for i in (7, 10**12 - 1)]


PINNED = [1, 7, 6, 9, 8, 0, 4, 3, 5, 2]


def test_every_permutation_of_few_is_about_as_likely() -> None:
    counts = Counter(tuple(Permutation(4, key)(np.arange(4)).tolist()) for key in range(4800))
    assert len(counts) == 24
    assert min(counts.values()) > 140 and max(counts.values()) < 260  # 200 expected, standard deviation 14


def test_neighbours_part() -> None:
    size = 100_000
    found = Permutation(size, 3)(np.arange(size))
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 0.02
    distance = np.abs(np.diff(found)) / size
    assert distance.mean() == pytest.approx(1 / 3, abs=0.01)


def test_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="size 0"):
        Permutation(0, 1)
