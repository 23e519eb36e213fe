"""The step that searches take, by C kernels, against the unit's own formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nmt.ops import native
from nmt.ops.dispatch import selected
from nmt.ops.matrices import quantize
from nmt.registry import CELLS

UNITS = ["atr", "gru", "lrn", "lstm", "min_gru", "min_lstm", "olrn", "sru", "ssru"]
pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"no C kernels: {native.problem()}")


def cell_and_input(unit: str, *, hidden: int = 40, rows: int = 7) -> tuple[Any, torch.Tensor, Any]:
    torch.manual_seed(5)
    cell = CELLS.get(unit)(24, hidden)
    cell.reset_parameters(0.5)
    return cell, torch.randn(rows, 24), cell.unpack_state(torch.randn(rows, cell.state_size))


@pytest.mark.parametrize("unit", UNITS)
def test_is_the_step_of_the_unit(unit: str) -> None:
    cell, x, state = cell_and_input(unit)
    with torch.inference_mode():
        projected = cell.project(x)
        found, expected = cell.search_step(projected, state), cell.step(projected, state)
    assert type(found) is type(expected)
    torch.testing.assert_close(tuple(found), tuple(expected), rtol=0, atol=2e-6)


@pytest.mark.parametrize("unit", UNITS)
def test_in_bf16_it_is_as_near_to_fp32_as_the_formula(unit: str) -> None:
    cell, x, state = cell_and_input(unit)
    with torch.inference_mode():
        exact = cell.step(cell.project(x), state)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            projected = cell.project(x)
            found, formula = cell.search_step(projected, state), cell.step(projected, state)
    for part, expected, other in zip(found, exact, formula, strict=True):
        assert part.dtype == torch.float32
        assert (part - expected).abs().max() <= 1.5 * (other - expected).abs().max() + 1e-3


@pytest.mark.parametrize("unit", ["atr", "gru", "lstm"])
def test_takes_recurrent_matrices_in_int8(unit: str) -> None:
    cell, x, state = cell_and_input(unit)
    for name, weight in list(cell.named_parameters()):
        if weight.dim() == 2:
            delattr(cell, name)
            setattr(cell, name, quantize(weight))
    with torch.inference_mode():
        projected = cell.project(x)
        found, expected = cell.search_step(projected, state), cell.step(projected, state)
    # the candidate's inputs, rounded to int8, may differ by one such step where kernel and formula round differently
    torch.testing.assert_close(tuple(found), tuple(expected), rtol=0, atol=1e-2)


def test_is_the_formula_where_a_gradient_is_wanted_or_kernels_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, x, state = cell_and_input("gru")
    assert cell.search_step(cell.project(x), state).h.requires_grad
    with selected("reference"), torch.inference_mode():
        projected = cell.project(x)
        assert torch.equal(cell.search_step(projected, state).h, cell.step(projected, state).h)
