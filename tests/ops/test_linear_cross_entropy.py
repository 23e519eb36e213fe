"""Output layer and cross entropy in chunks: losses and gradients against the definition on all logits at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import nmt.ops.linear_cross_entropy as module
from nmt.ops import native
from nmt.ops.dispatch import selected
from nmt.ops.linear_cross_entropy import (
    Loss,
    linear_cross_entropy,
    linear_cross_entropy_native,
    linear_cross_entropy_reference,
)
from nmt.ops.recurrence import aligned_rows
from tests.cross_entropy import reference_cross_entropy

E = 6


@pytest.fixture(params=["native", "reference"])
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both implementations for the CPU."""
    if request.param == "native" and native.problem():
        pytest.skip(f"no native kernels here: {native.problem()}")
    with selected("auto" if request.param == "native" else "reference"):
        yield request.param


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """New memory is full of NaN."""
    empty, new_empty, empty_like = torch.empty, Tensor.new_empty, torch.empty_like
    monkeypatch.setattr(torch, "empty", lambda *a, **k: _fill(empty(*a, **k)))
    monkeypatch.setattr(Tensor, "new_empty", lambda *a, **k: _fill(new_empty(*a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: _fill(empty_like(*a, **k)))


def _fill(tensor: Tensor) -> Tensor:
    return tensor.fill_(math.nan) if tensor.is_floating_point() else tensor


def problem(rows: int, words: int, dtype: torch.dtype, *, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, table, targets and weights."""
    torch.manual_seed(rows)
    features = (scale * torch.randn(rows, E)).to(dtype).requires_grad_()
    table = torch.randn(words, E).to(dtype).requires_grad_()
    return features, table, torch.randint(0, words, (rows,)), torch.rand(rows, dtype=torch.float64)


def exact(
    features: Tensor, table: Tensor, targets: Tensor, weights: Tensor, label_smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Weighted sum, losses, negative log-likelihoods and both gradients by the definition in fp64."""
    x, w = (tensor.detach().double().requires_grad_() for tensor in (features, table))
    losses = reference_cross_entropy(x @ w.t(), targets, label_smoothing=label_smoothing)
    total = (losses * weights).sum()
    nll = reference_cross_entropy((x @ w.t()).detach(), targets)
    return total.detach(), losses.detach(), nll, *torch.autograd.grad(total, (x, w))


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("rows", [0, 1, 4, 5, 8, 11])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_losses_and_gradients_equal_the_definition(
    dtype: torch.dtype,
    tolerance: float,
    rows: int,
    label_smoothing: float,
    kernels: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CPU_ROWS", 4)
    for words in (2, 37):
        features, table, targets, weights = problem(rows, words, dtype, scale=3)
        total, losses, nll = linear_cross_entropy(
            features, table, targets=targets, weights=weights, label_smoothing=label_smoothing
        )
        gradients = torch.autograd.grad(total, (features, table))
        assert total.dtype == losses.dtype == nll.dtype == dtype and not (losses.requires_grad or nll.requires_grad)
        wanted = exact(features, table, targets, weights, label_smoothing)
        for found, right in zip((total, losses, nll, *gradients), wanted, strict=True):
            torch.testing.assert_close(found.double(), right, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("poisoned")
def test_bf16_products_of_fp32_weights(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What autocast rounds is rounded, and nothing else: softmax and sums over chunks are in fp32."""
    monkeypatch.setattr(module, "CPU_ROWS", 16)
    features, table, targets, weights = problem(50, 130, torch.float32)
    with torch.no_grad():
        for tensor in (features, table):
            tensor.copy_(tensor.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        total, losses, nll = linear_cross_entropy(
            features, table, targets=targets, weights=weights, label_smoothing=0.1
        )
    gradients = torch.autograd.grad(total, (features, table))
    assert [tensor.dtype for tensor in (total, losses, nll, *gradients)] == [torch.float32] * 5
    rounded = (features @ table.t()).detach().bfloat16().double()
    torch.testing.assert_close(
        losses.double(), reference_cross_entropy(rounded, targets, label_smoothing=0.1), rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(nll.double(), reference_cross_entropy(rounded, targets), rtol=1e-5, atol=1e-5)
    wanted = exact(features, table, targets, weights, 0.1)
    for found, right in zip((total, losses, nll, *gradients), wanted, strict=True):
        close = 0.01 * float(right.abs().max())
        torch.testing.assert_close(found.double(), right, rtol=0, atol=close)


def test_the_gradient_of_the_table_adds_up_in_fp32(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of so many chunks of equal gradients a sum in bf16 would hold a quarter: it stays where one more is too small."""
    monkeypatch.setattr(module, "CPU_ROWS", 2)
    rows = 2048
    features, table = torch.ones(rows, E), torch.zeros(4, E, requires_grad=True)
    targets, weights = torch.zeros(rows, dtype=torch.int64), torch.ones(rows, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        linear_cross_entropy(features, table, targets=targets, weights=weights)[0].backward()
    wanted = torch.tensor([-0.75, 0.25, 0.25, 0.25]).unsqueeze(1).expand(-1, E) * rows
    torch.testing.assert_close(table.grad, wanted, rtol=0.01, atol=0)


@pytest.mark.parametrize("cast", [torch.float32, torch.bfloat16])
def test_gradients_have_the_types_of_features_and_table(cast: torch.dtype, kernels: str) -> None:
    features, table, targets, weights = problem(5, 9, torch.float32)
    narrow = features.detach().to(cast).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        total, *_ = linear_cross_entropy(narrow, table, targets=targets, weights=weights)
    total.backward()
    assert narrow.grad is not None and narrow.grad.dtype == cast
    assert table.grad is not None and table.grad.dtype == torch.float32


def test_what_comes_from_above_multiplies_the_gradients() -> None:
    features, table, targets, weights = problem(5, 9, torch.float64)
    for factor in (1.0, -2.5, 0.0):
        total, *_ = linear_cross_entropy(features, table, targets=targets, weights=weights, label_smoothing=0.1)
        found = torch.autograd.grad(factor * total, (features, table))
        wanted = exact(features, table, targets, factor * weights, 0.1)[3:]
        for ours, right in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, right, rtol=0, atol=1e-13)


def test_a_second_backward_pass_is_refused() -> None:
    features, table, targets, weights = problem(5, 9, torch.float32)
    total, *_ = linear_cross_entropy(features, table, targets=targets, weights=weights)
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        total.backward()


def test_one_weight_for_all_and_one_gradient_only() -> None:
    features, table, targets, _ = problem(5, 9, torch.float64)
    total, losses, nll = linear_cross_entropy(features.detach(), table, targets=targets, weights=torch.tensor(0.25))
    assert nll is losses  # without smoothing they are the same
    assert total.item() == pytest.approx(losses.sum().item() / 4)
    (found,) = torch.autograd.grad(total, table)
    wanted = exact(features, table, targets, torch.full((5,), 0.25, dtype=torch.float64), 0.0)
    torch.testing.assert_close(found, wanted[4], rtol=0, atol=1e-13)


def test_without_a_gradient_to_come_none_is_made(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    monkeypatch.setattr(module, "CPU_ROWS", 2)
    monkeypatch.setattr(module.LinearCrossEntropy, "apply", None)
    features, table, targets, weights = problem(5, 9, torch.float32)
    with torch.no_grad():
        total, losses, nll = linear_cross_entropy(
            features, table, targets=targets, weights=weights, label_smoothing=0.1
        )
    wanted = exact(features, table, targets, weights, 0.1)
    torch.testing.assert_close(losses.double(), wanted[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll.double(), wanted[2], rtol=1e-5, atol=1e-5)
    assert not total.requires_grad
    assert total.item() == pytest.approx(wanted[0].item(), rel=1e-5)


def test_logits_of_one_chunk_exist_at_a_time(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    monkeypatch.setattr(module, "CPU_ROWS", 4)
    seen: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
    step = module.choose("linear_cross_entropy", linear_cross_entropy_reference, like=torch.zeros(1))

    def watched(logits: Tensor, targets: Tensor, **rest: Any) -> None:
        seen.append((logits.data_ptr(), tuple(logits.shape), logits.stride()))
        step(logits, targets, **rest)

    monkeypatch.setattr(module, "choose", lambda *_, **__: watched)
    features, table, targets, weights = problem(10, 50, torch.float32)
    linear_cross_entropy(features, table, targets=targets, weights=weights)[0].backward()
    assert [shape for _, shape, _ in seen] == [(4, 50), (4, 50), (2, 50)]
    assert {step for _, _, step in seen} == {(64, 1)}  # so each row is aligned
    assert len({address for address, _, _ in seen}) == 1


def test_a_perfect_fit_costs_nothing_and_a_uniform_one_its_divergence(kernels: str) -> None:
    words, smoothing = 5, 0.2
    wanted = torch.full((1, words), smoothing / (words - 1))
    wanted[0, 3] = 1 - smoothing
    loss, *_ = linear_cross_entropy(
        wanted.log(), torch.eye(words), targets=torch.tensor([3]), weights=torch.ones(1), label_smoothing=smoothing
    )
    assert loss.item() == pytest.approx(0, abs=1e-6)
    uniform, *_ = linear_cross_entropy(
        torch.zeros(1, words), torch.eye(words), targets=torch.tensor([3]), weights=torch.ones(1)
    )
    assert uniform.item() == pytest.approx(math.log(words), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_so(bad: float, dtype: torch.dtype, kernels: str) -> None:
    """In the row that it is in, and in no other."""
    features, table, targets, weights = problem(4, 40, torch.float32)
    with torch.no_grad():
        features[2, 1] = bad
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        total, losses, nll = linear_cross_entropy(
            features, table, targets=targets, weights=weights, label_smoothing=0.1
        )
    total.backward()
    assert not total.isfinite()
    for values in (losses, nll):
        assert values.isfinite().tolist() == [True, True, False, True]
    assert features.grad is not None and table.grad is not None
    assert features.grad.isfinite().all(1).tolist() == [True, True, False, True]
    assert not table.grad.isfinite().all()


@pytest.mark.parametrize("target", [-1, 9])
def test_a_target_outside_the_table_is_refused(target: int) -> None:
    features, table, targets, weights = problem(5, 9, torch.float32)
    targets[3] = target
    with pytest.raises((IndexError, RuntimeError), match="targets must be ids from 0 to 8|out of bounds"):
        linear_cross_entropy(features, table, targets=targets, weights=weights)


def run_step(
    step: Callable[..., None], logits: Tensor, targets: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    if logits.is_contiguous():
        logits = logits.clone()
    losses = torch.full((len(logits),), math.nan)
    step(logits, targets, weights=weights, loss=Loss.smoothed(logits.size(1), 0.1), losses=losses)
    return logits, losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("step", [linear_cross_entropy_native, linear_cross_entropy_reference])
def test_losses_and_gradient_are_the_same_bits_with_and_without_the_nll(
    step: Callable[..., None], dtype: torch.dtype
) -> None:
    if step is linear_cross_entropy_native and native.problem():
        pytest.skip(f"no native kernels here: {native.problem()}")
    torch.manual_seed(4)
    logits, targets, weights = (8 * torch.randn(23, 1003)).to(dtype), torch.randint(0, 1003, (23,)), torch.randn(23)
    nll = torch.full((23,), math.nan)
    pairs = zip(
        run_step(partial(step, nll=nll), logits, targets, weights),
        run_step(step, logits, targets, weights),
        strict=True,
    )
    assert all(torch.equal(*pair) for pair in pairs)
    torch.testing.assert_close(nll.double(), reference_cross_entropy(logits.double(), targets), rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(native.problem() is not None, reason="there are no native kernels here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("words", [1, 15, 1003])
def test_the_c_kernel_equals_the_reference_whatever_the_threads(words: int, dtype: torch.dtype) -> None:
    torch.manual_seed(words)
    logits, targets = (8 * torch.randn(23, words)).to(dtype), torch.randint(0, words, (23,))
    weights = torch.randn(23)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = run_step(linear_cross_entropy_native, logits, targets, weights)
        torch.set_num_threads(2)
        shared = run_step(linear_cross_entropy_native, logits, targets, weights)
        wanted = run_step(linear_cross_entropy_reference, logits, targets, weights)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(*pair) for pair in zip(alone, shared, strict=True))
    torch.testing.assert_close(alone[1], wanted[1], rtol=1e-5, atol=1e-5)
    close = {torch.float32: 1e-6, torch.bfloat16: 2**-7}[dtype]
    torch.testing.assert_close(alone[0], wanted[0], rtol=close, atol=1e-6)
    assert torch.equal(run_step(linear_cross_entropy_native, logits, targets, None)[1], alone[1])
    apart = aligned_rows(23, words, like=logits).copy_(logits)
    assert all(
        torch.equal(*pair)
        for pair in zip(run_step(linear_cross_entropy_native, apart, targets, weights), alone, strict=True)
    )


@pytest.mark.skipif(native.problem() is not None, reason="there are no native kernels here")
def test_more_words_than_a_thread_has_room_for_are_left_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    targets, loss = torch.tensor([3, 0, 8]), Loss.smoothed(9, 0.1)
    found = []
    for most in (9, 8):
        monkeypatch.setattr("nmt.ops.linear_cross_entropy.MOST_WORDS", most)
        logits, losses, nll = torch.linspace(-4, 4, 27).view(3, 9), torch.empty(3), torch.full((3,), math.nan)
        linear_cross_entropy_native(logits, targets, weights=torch.ones(3), loss=loss, losses=losses, nll=nll)
        found.append((logits, losses, nll))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
