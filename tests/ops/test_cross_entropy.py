"""Label-smoothed cross entropy: closed form and hand-written gradient against the definition."""

from __future__ import annotations

import math

import pytest
import torch

from nmt.ops.cross_entropy import cross_entropy, fused, reference_cross_entropy


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize(("rows", "words"), [(7, 11), (1, 2), (0, 5)])
def test_values_and_gradients_equal_the_definition(
    rows: int, words: int, label_smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "_CPU_VALUES", 25)  # several chunks, the last of them shorter
    torch.manual_seed(0)
    logits = (3 * torch.randn(rows, words, dtype=torch.float64)).requires_grad_()
    targets = torch.randint(0, words, (rows,))
    factors = torch.randn(rows, dtype=torch.float64)
    ours = cross_entropy(logits, targets, label_smoothing=label_smoothing)
    wanted = reference_cross_entropy(logits, targets, label_smoothing=label_smoothing)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-13)
    gradients = [torch.autograd.grad((losses * factors).sum(), logits)[0] for losses in (ours, wanted)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-13)


def test_a_perfect_fit_costs_nothing_and_a_uniform_one_its_divergence() -> None:
    words, smoothing = 5, 0.2
    wanted = torch.full((1, words), smoothing / (words - 1), dtype=torch.float64)
    wanted[0, 3] = 1 - smoothing
    target = torch.tensor([3])
    assert cross_entropy(wanted.log(), target, label_smoothing=smoothing).item() == pytest.approx(0, abs=1e-14)
    uniform = cross_entropy(torch.zeros(1, words), target).item()
    assert uniform == pytest.approx(math.log(words), rel=1e-6)


def test_low_precision_logits_are_summed_in_fp32() -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, 1000).bfloat16().requires_grad_()
    targets = torch.arange(4)
    losses = cross_entropy(logits, targets, label_smoothing=0.1)
    assert losses.dtype == torch.float32
    exact = reference_cross_entropy(logits.detach().double(), targets, label_smoothing=0.1)
    torch.testing.assert_close(losses.double(), exact, rtol=1e-5, atol=1e-5)
    losses.sum().backward()
    assert logits.grad is not None and logits.grad.dtype == torch.bfloat16


def test_nothing_of_the_size_of_the_logits_is_kept_for_the_backward_pass() -> None:
    logits = torch.randn(8, 100, requires_grad=True)
    kept: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        cross_entropy(logits, torch.zeros(8, dtype=torch.int64), label_smoothing=0.1)
    assert [tensor.data_ptr() for tensor in kept if tensor.numel() >= logits.numel()] == [logits.data_ptr()]
