"""Sequence forms with C kernels: outputs, last state and all gradients against the reference in float64."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from tests.ops.triton.comparison import assert_equal, outputs_and_gradients
from tests.ops.units import CASES as WITHOUT_NORM
from tests.ops.units import NORMALIZED, both, masks, needs_native
from tests.ops.units import PLAIN as PLAIN_WITHOUT_NORM

pytestmark = needs_native

BATCH, LENGTH, HIDDEN = 5, 9, 7
CASES, PLAIN = WITHOUT_NORM | NORMALIZED, (*PLAIN_WITHOUT_NORM, *NORMALIZED)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("started", [False, True], ids=["zeros", "state"])
@pytest.mark.parametrize("pattern", [0, 1, 2], ids=["all", "padding", "holes"])
@pytest.mark.parametrize("name", CASES)
def test_every_mask_start_and_direction(name: str, pattern: int, started: bool, reverse: bool) -> None:
    case, mask = CASES[name], masks(BATCH, LENGTH)[pattern]
    x, weights = case.inputs(batch=BATCH, length=LENGTH, hidden=HIDDEN)
    state = case.states(batch=BATCH, hidden=HIDDEN) if started else []
    ours, reference = both(case, mask, reverse=reverse)
    assert_equal(ours, reference, [x, *weights, *state])
    outputs, *last = ours(x.bfloat16(), *weights, *state)
    assert outputs.dtype == torch.bfloat16 and all(part.dtype == torch.float32 for part in last)
    slack = 1.5 if case.normalized else 1  # the norm of few values: PyTorch's own of products in bf16 is off by as much
    assert_equal(ours, reference, [x.bfloat16(), *weights, *state], storage=torch.bfloat16, slack=slack)


@pytest.mark.parametrize("hidden", [1, 7, 33])
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 9), (5, 1), (5, 9)])
@pytest.mark.parametrize("name", CASES)
def test_odd_sizes(name: str, batch: int, length: int, hidden: int) -> None:
    case = CASES[name]
    if case.normalized and hidden == 1:
        pytest.skip("the norm of one value is 0, and its gradient only rounding")
    x, weights = case.inputs(batch=batch, length=length, hidden=hidden)
    state = case.states(batch=batch, hidden=hidden)
    slack = 3 if hidden == 1 else 1  # the gradient of a weight is then one sum, which may cancel
    for mask in masks(batch, length):
        assert_equal(*both(case, mask, reverse=mask is None), [x, *weights, *state], slack=slack)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("batch", [0, 1, 5])
@pytest.mark.parametrize("name", PLAIN)
def test_no_time_step_leaves_the_state_as_it_is(name: str, batch: int, reverse: bool) -> None:
    case = CASES[name]
    x, weights = case.inputs(batch=batch, length=0, hidden=HIDDEN)
    state = case.states(batch=batch, hidden=HIDDEN)
    run = partial(case.kernel, mask=torch.ones(batch, 0, dtype=torch.bool), reverse=reverse)
    results = outputs_and_gradients(run, [x, *weights, *state])
    outputs, last, gradients = results[0], results[1 : 1 + case.parts], results[1 + case.parts :]
    assert outputs.shape == (batch, 0, HIDDEN) and all(map(torch.equal, last, state))
    assert gradients[0].shape == x.shape and not any(gradient.any() for gradient in gradients[1 : 1 + len(weights)])
    upstream = outputs_and_gradients(lambda *s: (x.new_zeros(batch, 0, HIDDEN) * s[0][:, None], *s), state)
    assert all(map(torch.equal, gradients[1 + len(weights) :], upstream[-case.parts :]))


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("name", PLAIN)
def test_an_empty_batch(name: str, length: int) -> None:
    case = CASES[name]
    x, weights = case.inputs(batch=0, length=length, hidden=HIDDEN)
    results = outputs_and_gradients(partial(case.kernel, mask=None, reverse=False), [x, *weights])
    assert results[0].shape == (0, length, HIDDEN) and not any(result.any() for result in results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PLAIN)
def test_inputs_need_not_be_contiguous(name: str, dtype: torch.dtype) -> None:
    case, mask = CASES[name], masks(BATCH, LENGTH)[2]
    assert mask is not None
    x, weights = case.inputs(batch=BATCH, length=LENGTH, hidden=HIDDEN)
    x = x.to(dtype)
    one = [part[:1] for part in case.states(batch=BATCH, hidden=HIDDEN)]
    right = outputs_and_gradients(
        partial(case.kernel, mask=mask, reverse=False), [x, *weights, *(part.repeat(BATCH, 1) for part in one)]
    )
    wide = torch.cat([x, x, x], -1)
    forms = {
        "time first": x.transpose(0, 1).contiguous().transpose(0, 1),
        "part of a wider tensor": wide[..., x.size(-1) : 2 * x.size(-1)],
        "every other value": torch.stack([x, x], -1)[..., 0],
        "columns first": x.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    }
    strange_weights = [weight.t().contiguous().t() if weight.dim() == 2 else weight for weight in weights]
    strange_weights = [torch.stack([w, w], -1)[..., 0] if w.dim() == 1 else w for w in strange_weights]
    for form, strange in forms.items():
        for live in (mask.t().contiguous().t(), mask.long(), torch.stack([mask, mask], -1)[..., 1]):
            run = partial(case.kernel, mask=live, reverse=False)
            found = outputs_and_gradients(run, [strange, *strange_weights, *(part.expand(BATCH, -1) for part in one)])
            for ours, wanted in zip(found, right, strict=True):
                torch.testing.assert_close(ours, wanted, msg=form)


@pytest.mark.parametrize("name", PLAIN)
def test_gradients_from_above_need_not_be_contiguous(name: str) -> None:
    case = CASES[name]
    x, weights = case.inputs(batch=BATCH, length=LENGTH, hidden=HIDDEN)
    x.requires_grad_()
    outputs, *last = case.kernel(x, *weights, mask=None, reverse=False)
    upstream = torch.randn(BATCH, LENGTH, HIDDEN)
    (wanted,) = torch.autograd.grad(outputs, x, upstream, retain_graph=True)
    strange = upstream.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    torch.testing.assert_close(torch.autograd.grad(outputs, x, strange, retain_graph=True)[0], wanted)
    (of_sum,) = torch.autograd.grad(outputs.sum(), x, retain_graph=True)  # one number, expanded
    (of_ones,) = torch.autograd.grad(outputs, x, torch.ones_like(outputs), retain_graph=True)
    assert torch.equal(of_sum, of_ones)
    (of_last,) = torch.autograd.grad(last[0].sum(), x, retain_graph=True)  # and no gradient of the outputs
    late = torch.zeros_like(outputs)
    late[:, -1] = 1
    torch.testing.assert_close(of_last, torch.autograd.grad(outputs, x, late)[0])


@pytest.mark.parametrize("name", PLAIN)
def test_a_second_backward_pass_gives_the_same(name: str) -> None:
    case = CASES[name]
    x, weights = case.inputs(batch=2, length=3, hidden=HIDDEN)
    leaves = [tensor.requires_grad_() for tensor in (x, *weights)]
    outputs = case.kernel(*leaves, mask=None, reverse=True)
    passes = [torch.autograd.grad([part.sum() for part in outputs], leaves, retain_graph=True) for _ in range(2)]
    assert all(map(torch.equal, *passes))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", PLAIN)
def test_the_number_of_threads_changes_no_bit(name: str, dtype: torch.dtype) -> None:
    batch, length, hidden = 67, 3, 131  # more than a thread takes alone, and no multiple of anything
    case = CASES[name]
    x, weights = case.inputs(batch=batch, length=length, hidden=hidden)
    inputs = [x.to(dtype), *weights, *case.states(batch=batch, hidden=hidden)]
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(outputs_and_gradients(partial(case.kernel, mask=masks(batch, length)[1], reverse=False), inputs))
    for alone, shared in zip(*results, strict=True):
        assert torch.equal(alone, shared)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", CASES)
def test_what_is_not_finite_comes_through(name: str, bad: float) -> None:
    """Nowhere is a number where the reference has none, in values and gradients, and other rows do not notice."""
    case = CASES[name]
    clean, weights = case.inputs(batch=3, length=4, hidden=5)
    for column in range(0, clean.size(-1), 5):
        x = clean.clone()
        x[1, 1, column] = bad
        ours, reference = both(case, None, reverse=False)
        found, wanted = (outputs_and_gradients(run, [x, *weights]) for run in (ours, reference))
        for number, (mine, right) in enumerate(zip(found, wanted, strict=True)):
            assert not (mine.isfinite() & ~right.isfinite()).any(), (column, number)
        untouched: list[Tensor] = outputs_and_gradients(ours, [clean, *weights])
        for mine, before in zip(found[: 2 + case.parts], untouched, strict=False):  # x and what is computed from it
            assert torch.equal(mine[::2], before[::2]), column
