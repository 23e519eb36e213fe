"""R-Drop on the output layer in chunks: losses and gradients against the definition on all logits at once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import nmt.ops.linear_cross_entropy as module
from nmt.ops.linear_cross_entropy import linear_cross_entropy, linear_r_drop
from tests.cross_entropy import reference_cross_entropy

E = 6


def problem(words: int, vocabulary: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features of both passes, table, targets and weights."""
    torch.manual_seed(words)
    features = (3 * torch.randn(2, words, E)).to(dtype).requires_grad_()
    table = torch.randn(vocabulary, E).to(dtype).requires_grad_()
    return features, table, torch.randint(0, vocabulary, (words,)), torch.rand(words, dtype=torch.float64)


def definition(
    features: Tensor,
    table: Tensor,
    targets: Tensor,
    *,
    alpha: float,
    label_smoothing: float,
    rounded: torch.dtype = torch.float64,
) -> Tensor:
    """The losses [N] in fp64, with torch's KL divergence, of logits that are `rounded`, which gradients pass by."""
    logits = features.double() @ table.double().t()
    logits = logits + (logits.to(rounded) - logits).detach()
    entropies = [reference_cross_entropy(values, targets, label_smoothing=label_smoothing) for values in logits]
    p, q = logits.log_softmax(-1)
    divergences = [F.kl_div(b, a, log_target=True, reduction="none").sum(-1) for a, b in ((p, q), (q, p))]
    return sum(entropies) / 2 + alpha / 2 * sum(divergences) / 2


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """New memory is full of NaN."""
    new_empty, empty_like = Tensor.new_empty, torch.empty_like
    monkeypatch.setattr(Tensor, "new_empty", lambda *a, **k: _fill(new_empty(*a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: _fill(empty_like(*a, **k)))


def _fill(tensor: Tensor) -> Tensor:
    return tensor.fill_(math.nan) if tensor.is_floating_point() else tensor


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("words", [1, 4, 5, 11])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_losses_and_gradients_equal_the_definition(
    dtype: torch.dtype, tolerance: float, words: int, label_smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CPU_ROWS", 8)
    monkeypatch.setattr(module, "CPU_VALUES", 3 * 37)
    for vocabulary in (2, 37):
        features, table, targets, weights = problem(words, vocabulary, dtype)
        found = linear_r_drop(
            features, table, targets=targets, weights=weights, alpha=3.0, label_smoothing=label_smoothing
        )
        exact = [tensor.detach().double().requires_grad_() for tensor in (features, table)]
        losses = definition(*exact, targets, alpha=3.0, label_smoothing=label_smoothing)
        total = (losses * weights).sum()
        nll = definition(*exact, targets, alpha=0.0, label_smoothing=0.0)
        wanted = [total, losses, nll, *torch.autograd.grad(total, exact)]
        gradients = torch.autograd.grad(found.total, (features, table))
        assert not found.losses.requires_grad and not found.nll.requires_grad
        for ours, right in zip((*found, *gradients), wanted, strict=True):
            assert ours.dtype == dtype
            torch.testing.assert_close(ours.double(), right, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("poisoned")
def test_bf16_products_of_fp32_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits and their gradients are rounded; softmax, divergence and sums over chunks are in fp32."""
    monkeypatch.setattr(module, "CPU_ROWS", 16)
    features, table, targets, weights = problem(50, 130, torch.float32)
    with torch.no_grad():
        features.copy_((features / 3).bfloat16()), table.copy_(table.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        found = linear_r_drop(features, table, targets=targets, weights=weights, alpha=3.0, label_smoothing=0.1)
    gradients = torch.autograd.grad(found.total, (features, table))
    assert {tensor.dtype for tensor in (*found, *gradients)} == {torch.float32}
    exact = [tensor.detach().double().requires_grad_() for tensor in (features, table)]
    losses = definition(*exact, targets, alpha=3.0, label_smoothing=0.1, rounded=torch.bfloat16)
    torch.testing.assert_close(found.losses.double(), losses.detach(), rtol=1e-5, atol=1e-5)
    wanted = torch.autograd.grad((losses * weights).sum(), exact)
    for ours, right in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=0, atol=0.01 * float(right.abs().max()))


def test_without_weight_and_with_equal_passes_it_is_cross_entropy() -> None:
    features, table, targets, weights = problem(9, 21, torch.float64)
    same = features.detach()[:1].expand(2, -1, -1)
    wanted = linear_cross_entropy(same[0], table, targets=targets, weights=weights, label_smoothing=0.1)
    found = linear_r_drop(same, table, targets=targets, weights=weights, alpha=7.0, label_smoothing=0.1)
    torch.testing.assert_close(tuple(found), tuple(wanted))
    both = [linear_cross_entropy(one, table, targets=targets, weights=weights).total for one in features]
    alone = linear_r_drop(features, table, targets=targets, weights=weights, alpha=0.0).total
    assert alone.item() == pytest.approx(sum(both).item() / 2)


def test_only_the_gradients_that_are_wanted_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    features, table, targets, weights = problem(9, 21, torch.float64)
    options: dict[str, Any] = {"targets": targets, "weights": weights, "alpha": 2.0}
    wanted = torch.autograd.grad(linear_r_drop(features, table, **options).total, (features, table))
    pairs = ((features, table.detach()), (features.detach(), table))
    found = [torch.autograd.grad(linear_r_drop(*pair, **options).total, pair[number])[0] for number, pair in
             enumerate(pairs)]  # fmt: skip
    torch.testing.assert_close(found, list(wanted))
    monkeypatch.setattr(module.LinearCrossEntropy, "apply", None)
    with torch.no_grad():
        assert not linear_r_drop(features, table, **options).total.requires_grad


def test_logits_of_one_chunk_exist_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CPU_ROWS", 8)
    monkeypatch.setattr(module, "CPU_VALUES", 3 * 50)
    original, seen = module._write_losses, []

    def watched(logits: Tensor, targets: Tensor, **rest: Any) -> None:
        seen.append((logits.untyped_storage().data_ptr(), tuple(logits.shape)))
        original(logits, targets, **rest)

    monkeypatch.setattr(module, "_write_losses", watched)
    features, table, targets, weights = problem(10, 50, torch.float32)
    linear_r_drop(features, table, targets=targets, weights=weights, alpha=1.0).total.backward()
    assert [shape for _, shape in seen] == [(2, 3, 50), (2, 1, 50)] * 2 + [(2, 2, 50)]
    assert len({address for address, _ in seen}) == 1
