"""What the kernels share: exponential, sigmoid and tanh over all magnitudes, rounding to bf16, sums of columns."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nmt.ops import LRN
from nmt.ops.linear_cross_entropy import Loss, linear_cross_entropy_native
from nmt.ops.native import kernel
from nmt.ops.sequence import sequence
from tests.ops.units import needs_native

pytestmark = needs_native

SPECIAL = torch.tensor(
    [0.0, -0.0, 1e-45, -1e-38, 1e-30, 87.5, 88.1, 88.6, 89.5, 127.0, 1e3, 1e9, 1e20, 3e38, torch.inf]
)


def magnitudes() -> Tensor:
    """Both signs: values close to each other where something happens, and powers of ten up to the largest float."""
    dense, wide = torch.linspace(-100, 100, 40_001), torch.logspace(-38, 38, 4_001, dtype=torch.float64).float()
    return torch.cat([dense, wide, -wide, SPECIAL, -SPECIAL])


def first_state(p: Tensor, r: Tensor, *, tanh: bool) -> Tensor:
    """One step of LRN from zero: sigmoid(p) * r, or the tanh of it."""
    x = torch.stack([p, torch.zeros_like(p), r], -1)[:, None]  # [B, 1, 3]
    return sequence(LRN(tanh=tanh), x)[1][0][:, 0]


def softmax_share(x: Tensor) -> Tensor:
    """e^x / (1 + e^x) for x <= 0, by the gradient of a loss of two words."""
    logits = torch.stack([x, torch.zeros_like(x)], -1)
    targets, ones = torch.ones(len(x), dtype=torch.int64), torch.ones(len(x))
    linear_cross_entropy_native(logits, targets, weights=ones, loss=Loss(0.0, 0.0, 0.0), losses=torch.empty(len(x)))
    return logits[:, 0]


def check(found: Tensor, wanted: Tensor, *, relative: float) -> None:
    """Within `relative`, or within the smallest float of full precision."""
    assert found.isfinite().all()
    error = (found.double() - wanted).abs() - torch.finfo(torch.float32).tiny
    assert (error <= relative * wanted.abs()).all(), float((error / wanted.abs()).nan_to_num().max())


def test_sigmoid() -> None:
    x = magnitudes()
    check(first_state(x, torch.ones_like(x), tanh=False), torch.sigmoid(x.double()), relative=3e-7)


def test_tanh() -> None:
    x = magnitudes()
    check(first_state(torch.full_like(x, 100.0), x, tanh=True), torch.tanh(x.double()), relative=3e-7)


def test_exponential() -> None:
    x = -magnitudes().abs()
    check(softmax_share(x), torch.sigmoid(x.double()), relative=4e-7)


def test_an_infinite_gate_is_shut() -> None:
    """sigmoid(-inf) is 0, not a small number: what it multiplies is gone, and 0 times infinity is no number."""
    low = torch.tensor([-torch.inf, -1e30, -1e3])
    assert first_state(low, torch.full((3,), 3e38), tanh=False).tolist() == [0.0, 0.0, 0.0]
    assert first_state(low, torch.full((3,), torch.inf), tanh=False).isnan().all()


def test_nan_stays_nan() -> None:
    nan, ones = torch.full((5,), torch.nan), torch.ones(5)
    for found in (first_state(nan, ones, tanh=False), first_state(ones, nan, tanh=True), softmax_share(nan)):
        assert found.isnan().all()


def test_bf16_rounds_as_torch_does() -> None:
    """To nearest, ties to even; also to infinity, and NaN whatever its bits."""
    bits = torch.arange(0, 2**32, 2**15 - 7, dtype=torch.int64)
    ties = torch.arange(0, 2**32, 2**16, dtype=torch.int64) + 2**15
    values = torch.cat([bits, ties]).to(torch.int32).view(torch.float32)
    x, dead = torch.zeros(len(values), 1, 3, dtype=torch.bfloat16), torch.zeros(len(values), 1)
    outputs, (last,) = sequence(LRN(), x, (values[:, None],), dead)
    assert torch.equal(last[:, 0].view(torch.int32), values.view(torch.int32))
    torch.testing.assert_close(outputs[:, 0, 0], values.bfloat16(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "width"), [(0, 3), (1, 1), (63, 127), (64, 128), (65, 129), (257, 300)])
def test_sums_of_columns(rows: int, width: int, dtype: torch.dtype) -> None:
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(1)).to(dtype)
    sums = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        sums.append(torch.empty(width))
        kernel("sum_columns", dtype)(x, sums[-1], rows, width)
    assert torch.equal(*sums)
    torch.testing.assert_close(sums[0].double(), x.double().sum(0), rtol=1e-6, atol=1e-6 * max(rows, 1))


def test_logits_of_any_size_have_a_loss() -> None:
    """Nothing overflows on the way; a word that is ruled out (-inf) has no share, and costs what it should."""
    logits = torch.tensor([[3e38, -3e38, 0.0], [-3e38, -3e38, -3e38], [-torch.inf, 1.0, 1.0], [-torch.inf, 1.0, 1.0]])
    targets, ones, losses = torch.tensor([0, 1, 1, 0]), torch.ones(4), torch.empty(4)
    linear_cross_entropy_native(logits, targets, weights=ones, loss=Loss(1.0, 0.0, 0.0), losses=losses)
    torch.testing.assert_close(losses, torch.tensor([0.0, math.log(3), math.log(2), torch.inf]))
    third = 1 / 3
    wanted = [[0.0, 0.0, 0.0], [third, third - 1, third], [0.0, -0.5, 0.5], [-1.0, 0.5, 0.5]]
    torch.testing.assert_close(logits, torch.tensor(wanted))
