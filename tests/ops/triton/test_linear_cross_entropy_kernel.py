"""The fused linear map and loss against plain operations on all logits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt.ops.cross_entropy import reference_cross_entropy
from tests.ops.triton.comparison import TOLERANCE, randn

fused = pytest.importorskip("nmt.ops.linear_cross_entropy.triton", reason="Triton is not installed")


def inputs(device: torch.device, *, rows: int, words: int, width: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """features, table, targets and weights; the first row is worth nothing."""
    targets = torch.randint(0, words, (rows,), generator=torch.Generator().manual_seed(2))
    weights = torch.rand(rows, generator=torch.Generator().manual_seed(3))
    weights[:1] = 0
    features = randn(rows, width, device=device).requires_grad_()
    return features, randn(words, width, device=device, seed=1).requires_grad_(), targets.to(device), weights.to(device)


def plain(features: Tensor, table: Tensor, targets: Tensor, weights: Tensor, smoothing: float) -> list[Tensor]:
    """Sum, losses and the gradients of features and table, in fp64 from the written out definition."""
    x, words = (tensor.detach().double().requires_grad_() for tensor in (features, table))
    losses = reference_cross_entropy(x @ words.t(), targets, label_smoothing=smoothing)
    total = (losses * weights.double()).sum()
    return [total, losses, *torch.autograd.grad(total, (x, words))]


def assert_near(ours: Tensor, right: Tensor, *, storage: torch.dtype = torch.float32) -> None:
    assert ours.shape == right.shape
    assert (ours.double() - right).norm() <= TOLERANCE[storage] * right.norm().clamp_min(1e-3)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "words"), [(5, 11), (1, 2), (3, 100)])
def test_values_and_gradients_equal_the_definition(
    rows: int, words: int, smoothing: float, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "CHUNK_VALUES", 2 * words)  # chunks of two rows
    monkeypatch.setattr(fused, "LONGEST_BLOCK", 32)  # several blocks in a row, the last of them not full
    tensors = inputs(device, rows=rows, words=words)
    total, losses = fused.linear_cross_entropy_triton(*tensors, label_smoothing=smoothing)
    assert not losses.requires_grad
    gradients = torch.autograd.grad(3 * total, tensors[:2])
    right = plain(*tensors, smoothing)
    for ours, wanted, factor in zip((total, losses, *gradients), right, (1, 1, 3, 3), strict=True):
        assert_near(ours, factor * wanted)


def test_large_logits_do_not_overflow(device: torch.device) -> None:
    features, table, targets, weights = inputs(device, rows=3, words=9)
    with torch.no_grad():
        features *= 200
    total, losses = fused.linear_cross_entropy_triton(features, table, targets, weights, label_smoothing=0.1)
    right = plain(features, table, targets, weights, 0.1)
    assert_near(losses, right[1])
    assert_near(torch.autograd.grad(total, features)[0], right[2])


def test_autocast_multiplies_in_its_type_and_sums_in_fp32(device: torch.device) -> None:
    tensors = inputs(device, rows=7, words=40, width=8)
    with torch.autocast(device.type, torch.bfloat16):
        total, losses = fused.linear_cross_entropy_triton(*tensors, label_smoothing=0.1)
    gradients = torch.autograd.grad(total, tensors[:2])
    assert {x.dtype for x in (total, losses, *gradients)} == {torch.float32}
    for ours, wanted in zip((losses, *gradients), plain(*tensors, 0.1)[1:], strict=True):
        assert_near(ours, wanted, storage=torch.bfloat16)


def test_without_gradients_none_is_computed(device: torch.device) -> None:
    features, table, targets, weights = inputs(device, rows=3, words=9)
    with torch.no_grad():
        total, losses = fused.linear_cross_entropy_triton(features, table, targets, weights, label_smoothing=0.1)
    assert_near(losses, plain(features, table, targets, weights, 0.1)[1].detach())
    logits = features.detach() @ table.detach().t()
    before = logits.clone()
    again = fused.losses_and_gradient(logits, targets, weights, label_smoothing=0.1, gradient=False)
    torch.testing.assert_close(again, losses)
    assert torch.equal(logits, before)


def test_no_rows(device: torch.device) -> None:
    features, table, targets, weights = inputs(device, rows=0, words=9)
    total, losses = fused.linear_cross_entropy_triton(features, table, targets, weights, label_smoothing=0.1)
    assert losses.shape == (0,)
    assert total == 0
    assert not torch.autograd.grad(total, table)[0].any()


def test_the_operator_passes_the_checks_of_torch(device: torch.device) -> None:
    tensors = inputs(device, rows=3, words=9)
    torch.library.opcheck(fused.linear_cross_entropy_op, (*tensors, 0.1, True))
