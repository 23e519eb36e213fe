"""Weighting of accumulated batches, clipping, the guard against NaN."""

from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from nmt.training.update import BadUpdateGuard, DivergedError, clip_, word_weights


def accumulation_of(targets, *, normalization):
    """Of an update of these batches of ids [B, T], padding 0."""
    tokens = sum(int((ids != 0).sum()) for ids in targets)
    group = SimpleNamespace(whole_batches=len(targets), whole_sentences=sum(map(len, targets)), target_tokens=tokens)
    return partial(word_weights, group, normalization=normalization)


def losses_of(weight, target):
    """Token losses [B, T] with a gradient, zero at padding."""
    return (weight * target.double()) ** 2 * (target != 0)


def three_batches():
    torch.manual_seed(3)
    sizes = [(2, 5), (4, 3), (1, 7)]
    batches = [torch.randint(1, 9, size) for size in sizes]
    batches[0][1, 2:] = 0
    batches[1][3, 1:] = 0
    return batches


def test_token_weighting_equals_one_large_batch():
    batches = three_batches()
    weight = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    update = accumulation_of(batches, normalization="token")
    for target in batches:
        (losses_of(weight, target) * update(target)).sum().backward()
    whole = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    tokens = torch.cat([target[target != 0] for target in batches])
    loss = losses_of(whole, tokens).mean()
    loss.backward()
    assert weight.grad.item() == pytest.approx(whole.grad.item(), rel=1e-12)


@pytest.mark.parametrize("normalization", ["sentence", "batch"])
def test_sentences_have_equal_weight_in_the_update_or_in_their_batch(normalization):
    batches = three_batches()
    weight = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    update = accumulation_of(batches, normalization=normalization)
    for target in batches:
        (losses_of(weight, target) * update(target)).sum().backward()
    means = [[losses_of(weight, row[row != 0]).mean().item() for row in target] for target in batches]
    wanted = sum(map(sum, means)) / sum(map(len, means))
    if normalization == "batch":
        wanted = sum(sum(own) / len(own) for own in means) / len(means)
    assert weight.grad.item() == pytest.approx(2 / 1.5 * wanted, rel=1e-12)


def test_weights_of_the_words_and_none_at_padding():
    target = torch.tensor([[4, 5, 2, 0, 0], [2, 0, 0, 0, 0]])
    other = torch.tensor([[2]])
    each = accumulation_of([target, other], normalization="token")(target)
    assert each.tolist() == [[0.2, 0.2, 0.2, 0, 0], [0.2, 0, 0, 0, 0]]
    each = accumulation_of([target, other], normalization="batch")(target)
    assert each.tolist() == [[1 / 12, 1 / 12, 1 / 12, 0, 0], [1 / 4, 0, 0, 0, 0]]
    each = accumulation_of([target, other], normalization="sentence")(target)
    assert each.tolist() == [[1 / 9, 1 / 9, 1 / 9, 0, 0], [1 / 3, 0, 0, 0, 0]]


def weights_with(gradients):
    weights = [torch.nn.Parameter(torch.zeros(len(values))) for values in gradients]
    for weight, values in zip(weights, gradients, strict=True):
        weight.grad = torch.tensor(values)
    return weights


@pytest.mark.parametrize(("limit", "factor"), [(1.0, 1 / 13), (13.0, 1.0), (100.0, 1.0), (0.0, 1.0)])
def test_clipping_by_global_norm(limit, factor):
    weights = weights_with([[3.0, 4.0], [12.0]])
    weights.append(torch.nn.Parameter(torch.zeros(2)))  # without a gradient
    assert clip_(weights, limit) == pytest.approx(13.0)
    torch.testing.assert_close(weights[0].grad, torch.tensor([3.0, 4.0]) * factor)
    torch.testing.assert_close(weights[1].grad, torch.tensor([12.0]) * factor)
    assert weights[2].grad is None


def test_clipping_leaves_nan_and_nothing_alone():
    weights = weights_with([[math.nan, 4.0]])
    assert math.isnan(clip_(weights, 1.0))
    assert weights[0].grad[1] == 4.0
    assert clip_(weights_with([[math.inf]]), 1.0) == math.inf
    assert clip_([torch.nn.Parameter(torch.zeros(1))], 1.0) == 0.0


def test_guard_skips_counts_and_stops():
    guard = BadUpdateGuard(max_bad_updates=2)
    assert guard.usable(1.0, 2.0)
    assert not guard.usable(math.nan, 2.0)
    assert not guard.usable(1.0, math.inf)
    assert guard.usable(1.0, 2.0)
    assert (guard.total, guard.in_a_row) == (2, 0)
    assert not guard.usable(1.0, math.nan)
    resumed = BadUpdateGuard(max_bad_updates=2)
    resumed.load_state_dict(guard.state_dict())
    assert not resumed.usable(1.0, math.nan)
    with pytest.raises(DivergedError, match="3 consecutive updates.*gradient norm nan.*max_bad_updates is 2"):
        resumed.usable(1.0, math.nan)


def test_guard_bounds_the_norm():
    guard = BadUpdateGuard(max_bad_updates=1, skip_norm=2.0)
    assert guard.usable(1.0, 2.0)
    assert not guard.usable(1.0, 2.5, overflow=True), "a lower loss scale would not cure it, so it counts"
    assert (guard.total, guard.in_a_row) == (1, 1)
    assert guard.too_large(2.5) and not guard.too_large(2.0) and not guard.too_large(math.inf)
    with pytest.raises(
        DivergedError, match=r"gradient norm 3\.0, training.max_bad_updates is 1, training.skip_norm is 2"
    ):
        guard.usable(1.0, 3.0)


def test_guard_does_not_count_what_the_loss_scale_will_cure():
    guard = BadUpdateGuard(max_bad_updates=0)
    assert not guard.usable(1.0, math.inf, overflow=True)
    assert guard.total == 0
    with pytest.raises(DivergedError, match="objective nan"):
        guard.usable(math.nan, math.inf, overflow=True)
