"""The k best in a defined order, also among equals."""

from __future__ import annotations

import math

import pytest
import torch

from nmt.ops.best.reference import log_probabilities, top


@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("k", [1, 3, 8, 20])
def test_is_the_head_of_a_stable_sort(levels: int, k: int) -> None:
    generator = torch.Generator().manual_seed(levels + k)
    scores = torch.randint(0, levels, (40, 20), generator=generator).double()
    scores[3] = -math.inf
    scores[4, 2:] = -math.inf
    values, places = top(scores, k)
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :k])
    assert torch.equal(places, expected.indices[:, :k])


@pytest.mark.parametrize("levels", [3, 200, 10**6])
@pytest.mark.parametrize("size", [2560, 2561, 9999])
def test_long_rows(levels: int, size: int) -> None:
    """Long rows are searched block by block; the blocks of equal values are where it could go wrong."""
    generator = torch.Generator().manual_seed(levels)
    scores = torch.randint(0, levels, (6, size), generator=generator).double()
    scores[1, : size - 3] = -math.inf
    values, places = top(scores, 8)
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :8])
    assert torch.equal(places, expected.indices[:, :8])


def test_log_probabilities_are_never_less_than_float32() -> None:
    logits = torch.randn(3, 5)
    assert log_probabilities(logits.bfloat16()).dtype == torch.float32
    assert log_probabilities(logits).dtype == torch.float32
    assert log_probabilities(logits.double()).dtype == torch.float64
    assert torch.allclose(log_probabilities(logits).exp().sum(1), torch.ones(3))
