"""Kernels that one team of threads runs one after the other: the same results, in order, and only at the end."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt.ops.native import in_one_team, kernel
from tests.ops.units import needs_native

pytestmark = needs_native

ROWS, WIDTH = 64, 256
"""Enough for several threads."""


def add(x: Tensor, total: Tensor) -> None:
    """total += x"""
    kernel("add_rows", x.dtype)(x, x.stride(0), total, *x.shape)


def columns(x: Tensor) -> Tensor:
    """Their sums, by a kernel that reads what another one may have written."""
    total = torch.full((x.size(1),), torch.nan)
    kernel("sum_columns", x.dtype)(x, total, *x.shape)
    return total


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_kernels_run_at_the_end_and_in_order(threads: int, _threads: None) -> None:
    torch.set_num_threads(threads)
    x, total = torch.ones(ROWS, WIDTH, dtype=torch.bfloat16), torch.zeros(ROWS, WIDTH)
    with in_one_team(possible=True):
        for _ in range(300):
            add(x, total)
            add(-x * 0.5, total)  # a temporary tensor, which lives until its kernel has run
        sums = columns(x)
        assert not total.any() and sums.isnan().all()
    assert torch.equal(total, torch.full((ROWS, WIDTH), 150.0))
    assert torch.equal(sums, torch.full((WIDTH,), float(ROWS)))


def test_where_it_is_not_possible_all_runs_at_once() -> None:
    total = torch.zeros(ROWS, WIDTH)
    with in_one_team(possible=False):
        add(torch.ones(ROWS, WIDTH, dtype=torch.bfloat16), total)
        assert total.all()


def test_kernels_for_fp32_run_at_once() -> None:
    total = torch.zeros(ROWS, WIDTH)
    with in_one_team(possible=True):
        add(torch.ones(ROWS, WIDTH), total)
        assert total.all()


def test_after_an_error_nothing_runs_and_nothing_is_put_off() -> None:
    x, total = torch.ones(ROWS, WIDTH, dtype=torch.bfloat16), torch.zeros(ROWS, WIDTH)
    with pytest.raises(RuntimeError, match="halfway"), in_one_team(possible=True):
        add(x, total)
        raise RuntimeError("halfway")
    assert not total.any()
    add(x, total)
    assert total.all()
