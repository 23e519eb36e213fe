"""The kernel of the loss against plain operations on all logits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nmt.kernel_check.cases import TOLERANCES
from nmt.ops.linear_cross_entropy import Loss
from tests.cross_entropy import reference_cross_entropy
from tests.ops.triton.comparison import randn

fused = pytest.importorskip("nmt.ops.linear_cross_entropy.triton", reason="Triton is not installed")


def inputs(
    device: torch.device, *, rows: int, words: int, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    """logits, targets and weights; the first row is worth nothing."""
    targets = torch.randint(0, words, (rows,), generator=torch.Generator().manual_seed(2))
    weights = torch.rand(rows, generator=torch.Generator().manual_seed(3))
    weights[:1] = 0
    return 3 * randn(rows, words, device=device, dtype=dtype), targets.to(device), weights.to(device)


def run(
    logits: Tensor, targets: Tensor, weights: Tensor | None, smoothing: float, *, nll: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Losses, and what the logits have become."""
    logits, losses = logits.clone(), logits.new_empty(len(logits), dtype=torch.float32)
    loss = Loss.smoothed(logits.size(1), smoothing)
    fused.linear_cross_entropy_triton(logits, targets, weights=weights, loss=loss, losses=losses, nll=nll)
    return losses, logits


def plain(logits: Tensor, targets: Tensor, weights: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Losses and the gradient of their weighted sum, in fp64 from the written out definition."""
    x = logits.double().requires_grad_()
    losses = reference_cross_entropy(x, targets, label_smoothing=smoothing)
    return losses.detach(), torch.autograd.grad((losses * weights.double()).sum(), x)[0]


def assert_near(ours: Tensor, right: Tensor, *, storage: torch.dtype = torch.float32) -> None:
    assert ours.shape == right.shape
    assert (ours.double() - right).norm() <= TOLERANCES[storage] * right.norm().clamp_min(1e-3)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "words"), [(5, 11), (2, 3), (3, 100)])
def test_losses_and_gradient_equal_the_definition(
    rows: int, words: int, smoothing: float, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "LONGEST_BLOCK", 32)  # several blocks in a row, the last of them not full
    tensors = inputs(device, rows=rows, words=words)
    for ours, right in zip(run(*tensors, smoothing), plain(*tensors, smoothing), strict=True):
        assert_near(ours, right)


def test_large_logits_do_not_overflow(device: torch.device) -> None:
    logits, targets, weights = inputs(device, rows=3, words=9)
    logits *= 200
    for ours, right in zip(run(logits, targets, weights, 0.1), plain(logits, targets, weights, 0.1), strict=True):
        assert_near(ours, right)


def test_low_precision_logits_are_summed_in_fp32(device: torch.device) -> None:
    tensors = inputs(device, rows=4, words=300, dtype=torch.bfloat16)
    (losses, gradient), right = run(*tensors, 0.1), plain(*tensors, 0.1)
    assert gradient.dtype == torch.bfloat16
    assert_near(losses, right[0])
    assert_near(gradient, right[1], storage=torch.bfloat16)


@pytest.mark.parametrize(("words", "step"), [(9, 16), (9, 100), (40, 64), (64, 96)])
def test_what_lies_between_rows_counts_for_nothing(
    words: int, step: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "LONGEST_BLOCK", 32)
    logits, targets, weights = inputs(device, rows=3, words=words)
    room = torch.full((3, step), math.nan, device=device)
    room[:, :words] = logits
    losses = logits.new_empty(3)
    loss = Loss.smoothed(words, 0.1)
    fused.linear_cross_entropy_triton(room[:, :words], targets, weights=weights, loss=loss, losses=losses)
    right = plain(logits, targets, weights, 0.1)
    assert_near(losses, right[0])
    assert_near(room[:, :words], right[1])


def test_without_weights_the_logits_are_left_alone(device: torch.device) -> None:
    logits, targets, weights = inputs(device, rows=3, words=9)
    losses, after = run(logits, targets, None, 0.1)
    assert_near(losses, plain(logits, targets, weights, 0.1)[0])
    assert torch.equal(after, logits)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_nll_comes_with_the_same_losses_and_gradient(
    dtype: torch.dtype, smoothing: float, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "LONGEST_BLOCK", 32)
    tensors = inputs(device, rows=3, words=70, dtype=dtype)
    nll = torch.full((3,), math.nan, device=device)
    with_nll, without = run(*tensors, smoothing, nll=nll), run(*tensors, smoothing)
    assert all(torch.equal(*pair) for pair in zip(with_nll, without, strict=True))
    assert_near(nll, reference_cross_entropy(tensors[0].double(), tensors[1]))


def test_a_target_that_is_no_id_is_seen_in_its_loss(device: torch.device) -> None:
    logits, targets, weights = inputs(device, rows=3, words=9)
    targets[0], targets[2] = -1, 9
    assert run(logits, targets, weights, 0.1)[0].isnan().tolist() == [True, False, True]


def test_no_rows(device: torch.device) -> None:
    assert run(*inputs(device, rows=0, words=9), 0.1)[0].shape == (0,)
