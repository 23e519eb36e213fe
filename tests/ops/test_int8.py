"""Products with int8 matrices: near the exact product, row by row, the same by C kernels and by torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from nmt.ops import native
from nmt.ops.dispatch import selected
from nmt.ops.matrices import quantize

SHAPES = [(1, 7, 5), (9, 50, 37), (33, 64, 40), (5, 130, 1001), (12, 8, 32), (26, 33, 70), (250, 40, 65)]


@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize(("rows", "width", "outputs"), SHAPES)
def test_is_near_the_product(rows: int, width: int, outputs: int, kernels: str) -> None:
    torch.manual_seed(rows)
    x, weight, bias = torch.randn(rows, width), torch.randn(outputs, width), torch.randn(outputs)
    x[0] = 0.0
    with selected(kernels):
        found = F.linear(x, quantize(weight), bias)
    assert torch.equal(found[0], bias)
    # each factor is off by half a step at most, that is 1/254 of the largest of its row
    bound = (
        x.abs().amax(1, keepdim=True) * weight.abs().sum(1) + x.abs().sum(1, keepdim=True) * weight.abs().amax(1)
    ) / 250
    assert ((found - F.linear(x, weight, bias)).abs() <= bound + 1e-6).all()


@pytest.mark.skipif(native.problem() is not None, reason=f"no C kernels: {native.problem()}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "width", "outputs"), SHAPES)
def test_kernels_are_the_torch_code(rows: int, width: int, outputs: int, dtype: torch.dtype, biased: bool) -> None:
    torch.manual_seed(rows)
    x, weight = torch.randn(rows, width).to(dtype), quantize(torch.randn(outputs, width))
    bias = torch.randn(outputs) if biased else None
    found = F.linear(x, weight, bias)
    with selected("reference"):
        expected = F.linear(x, weight, bias)
    assert found.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_a_row_does_not_hang_on_the_others() -> None:
    x, weight = torch.randn(40, 64), quantize(torch.randn(300, 64))
    assert torch.equal(F.linear(x, weight)[7:9], F.linear(x[7:9].clone(), weight))


def test_leading_axes_and_selected_rows() -> None:
    x, weight = torch.randn(2, 3, 20), quantize(torch.randn(11, 20))
    words = torch.tensor([10, 3, 4])
    assert torch.equal(F.linear(x, weight.index_select(0, words)), F.linear(x, weight)[..., words])
