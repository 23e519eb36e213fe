"""Products with packed bf16 matrices; those with int8 are in test_int8.py."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from nmt.ops.dispatch import selected
from nmt.ops.matrices import to_bf16

SHAPES = [(1, 7, 5), (9, 50, 37), (33, 64, 40), (5, 131, 1001), (12, 8, 32), (26, 33, 70), (250, 40, 65)]


@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "width", "outputs"), SHAPES)
def test_is_the_product(kernels: str, rows: int, width: int, outputs: int, dtype: torch.dtype, biased: bool) -> None:
    torch.manual_seed(rows)
    x, plain = torch.randn(rows, width).to(dtype), torch.randn(outputs, width)
    bias = torch.randn(outputs) if biased else None
    with selected(kernels):
        found = F.linear(x, to_bf16(plain), bias)
    assert found.dtype == torch.float32
    wanted = F.linear(x.bfloat16().double(), plain.bfloat16().double(), None if bias is None else bias.double())
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-4)


def test_a_row_does_not_hang_on_the_others() -> None:
    x, weight = torch.randn(400, 64), to_bf16(torch.randn(300, 64))
    if not weight.has_kernel():
        pytest.skip("this CPU has no kernel for packed bf16 matrices")
    assert torch.equal(F.linear(x, weight)[7:9], F.linear(x[7:9].clone(), weight))


def test_leading_axes_selected_rows_and_plain_values() -> None:
    x, plain = torch.randn(2, 3, 21), torch.randn(11, 21)
    weight, words = to_bf16(plain), torch.tensor([10, 3, 4])
    assert torch.equal(F.linear(x, weight.index_select(0, words)), F.linear(x, weight)[..., words])
    assert weight.shape == (11, 21) and torch.equal(weight * 1, plain.bfloat16())
