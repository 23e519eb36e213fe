"""The C kernels of units whose steps need no matrix product, and of pairs of them, against their equations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt.ops.native import in_one_team
from nmt.ops.scan import NativeScan
from nmt.ops.unit import Sizes, States, steps_of
from tests.ops.scan_units import UNITS, equation, inputs, whole
from tests.ops.triton.comparison import assert_equal, outputs_and_gradients
from tests.ops.units import masks, needs_native

pytestmark = needs_native

BATCH, LENGTH, HIDDEN = 5, 9, 7
CPU = torch.device("cpu")


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("started", [False, True], ids=["zeros", "state"])
@pytest.mark.parametrize("pattern", [0, 1, 2], ids=["all", "padding", "holes"])
@pytest.mark.parametrize("name", UNITS)
def test_every_mask_start_and_direction(name: str, pattern: int, started: bool, reverse: bool) -> None:
    unit, mask = UNITS[name], masks(BATCH, LENGTH)[pattern]
    ours, reference = whole(NativeScan, unit, mask, reverse=reverse), equation(unit, mask, reverse=reverse)
    for dtype in (torch.float32, torch.bfloat16):
        given = inputs(
            unit,
            batch=BATCH,
            length=LENGTH,
            hidden=HIDDEN,
            device=CPU,
            started=started,
            directions=2 - reverse,
            dtype=dtype,
        )
        outputs, last = ours(*given.flat)
        assert (outputs.dtype, last.dtype) == (dtype, torch.float32)
        assert_equal(ours, reference, given.flat, storage=dtype)


@pytest.mark.parametrize("hidden", [1, 33])
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 9), (5, 1)])
@pytest.mark.parametrize("name", UNITS)
def test_odd_sizes(name: str, batch: int, length: int, hidden: int) -> None:
    given = inputs(UNITS[name], batch=batch, length=length, hidden=hidden, device=CPU)
    slack = 3 if hidden == 1 else 1  # the gradient of a weight is then one sum, which may cancel
    for mask in masks(batch, length):
        options = {"reverse": mask is None}
        ours, reference = whole(NativeScan, UNITS[name], mask, **options), equation(UNITS[name], mask, **options)
        assert_equal(ours, reference, given.flat, slack=slack)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", UNITS)
def test_single_steps_are_the_whole_sequence(name: str, masked: bool, dtype: torch.dtype) -> None:
    unit, mask = UNITS[name], masks(BATCH, LENGTH)[2] if masked else None
    given = inputs(unit, batch=BATCH, length=LENGTH, hidden=HIDDEN, device=CPU, dtype=dtype)
    assert given.state is not None
    sizes = Sizes(LENGTH, BATCH, HIDDEN, dtype, CPU)
    kernel = NativeScan(unit.with_weights([weight[0] for weight in given.weights]), sizes)
    states = States.empty(unit.states, LENGTH + 1, sizes)
    states.put(0, given.state[0])
    x = given.x[0]
    assert kernel.deferrable is (dtype == torch.bfloat16)
    live = [None if mask is None else mask[:, t : t + 1] for t in range(LENGTH)]
    steps = steps_of(x.split(1, 1), states.at(0, LENGTH), states.at(1, LENGTH + 1), live)
    with in_one_team(possible=kernel.deferrable):
        for step in steps:
            kernel.forward(step)

    leaves = [tensor.requires_grad_() for tensor in (given.x, given.state, *given.weights)]
    outputs, last = whole(NativeScan, unit, mask, reverse=False)(*leaves)
    assert torch.equal(states.operand[1:].transpose(0, 1), outputs[0])
    assert torch.equal(states.parts[:, -1], last[0])

    d_outputs, gradient = torch.randn(outputs.shape[1:]).to(dtype), torch.randn(last.shape[1:])
    wanted = torch.autograd.grad((outputs, last), leaves, (d_outputs[None], gradient[None].clone()))
    dx = torch.full_like(x, torch.nan)
    with in_one_team(possible=kernel.deferrable):
        for t in reversed(range(LENGTH)):  # h's gradient once as what the step after it returned
            d_output, pending = (None, d_outputs[:, t]) if t == LENGTH - 1 else (d_outputs[:, t : t + 1], None)
            kernel.backward(steps[t], gradient, pending=pending, d_output=d_output, dx=dx[:, t : t + 1])
    d_weights = kernel.weight_gradients(states.at(0, LENGTH), dx.transpose(0, 1))
    for ours, right in zip([dx, gradient, *d_weights], wanted, strict=True):
        torch.testing.assert_close(ours, right[0])


@pytest.mark.parametrize(("batch", "length"), [(2, 0), (0, 3), (0, 0)])
@pytest.mark.parametrize("name", ["lrn", "sru", "pair sru"])
def test_without_steps_or_rows_the_state_stays(name: str, batch: int, length: int) -> None:
    given = inputs(UNITS[name], batch=batch, length=length, hidden=HIDDEN, device=CPU)
    mask = torch.ones(batch, length, dtype=torch.bool)
    results = outputs_and_gradients(whole(NativeScan, UNITS[name], mask, reverse=False), given.flat)
    outputs, last, dx, d_state, *d_weights = results
    assert outputs.shape == (1, batch, length, HIDDEN) and torch.equal(last, given.state)
    assert dx.shape == given.x.shape and d_state.shape == last.shape
    assert not any(gradient.any() for gradient in d_weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["lrn", "sru", "pair sru"])
def test_inputs_need_not_be_contiguous(name: str, dtype: torch.dtype) -> None:
    mask = masks(BATCH, LENGTH)[2]
    assert mask is not None
    x, state, weights = inputs(UNITS[name], batch=BATCH, length=LENGTH, hidden=HIDDEN, device=CPU, dtype=dtype)
    assert state is not None
    one = state[:, :, :1]
    run = whole(NativeScan, UNITS[name], mask, reverse=False)
    right = outputs_and_gradients(run, [x, one.repeat(1, 1, BATCH, 1), *weights])
    strange_weights = [torch.stack([weight, weight], -1)[..., 0] for weight in weights]
    forms = {
        "time first": x.transpose(1, 2).contiguous().transpose(1, 2),
        "part of a wider tensor": torch.cat([x, x, x], -1)[..., x.size(-1) : 2 * x.size(-1)],
        "every other value": torch.stack([x, x], -1)[..., 0],
        "columns first": x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    }
    for form, strange in forms.items():
        for live in (mask.t().contiguous().t(), mask.long(), torch.stack([mask, mask], -1)[..., 1]):
            run = whole(NativeScan, UNITS[name], live, reverse=False)
            found = outputs_and_gradients(run, [strange, one.expand(1, -1, BATCH, -1), *strange_weights])
            for ours, wanted in zip(found, right, strict=True):
                torch.testing.assert_close(ours, wanted, msg=form)


@pytest.mark.parametrize("name", ["lrn", "sru", "pair sru"])
def test_gradients_from_above_need_not_be_contiguous(name: str) -> None:
    x, state, weights = inputs(UNITS[name], batch=BATCH, length=LENGTH, hidden=HIDDEN, device=CPU)
    x.requires_grad_()
    outputs, last = whole(NativeScan, UNITS[name], None, reverse=False)(x, state, *weights)
    upstream = torch.randn(outputs.shape)
    (wanted,) = torch.autograd.grad(outputs, x, upstream, retain_graph=True)
    strange = upstream.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    torch.testing.assert_close(torch.autograd.grad(outputs, x, strange, retain_graph=True)[0], wanted)
    (of_sum,) = torch.autograd.grad(outputs.sum(), x, retain_graph=True)  # one number, expanded
    (of_ones,) = torch.autograd.grad(outputs, x, torch.ones_like(outputs), retain_graph=True)
    assert torch.equal(of_sum, of_ones)
    (of_last,) = torch.autograd.grad(last[:, 0].sum(), x, retain_graph=True)  # and no gradient of the outputs
    late = torch.zeros_like(outputs)
    late[:, :, -1] = 1
    torch.testing.assert_close(of_last, torch.autograd.grad(outputs, x, late)[0])


@pytest.mark.parametrize("name", ["lrn", "sru", "pair sru"])
def test_a_second_backward_pass_gives_the_same(name: str) -> None:
    given = inputs(UNITS[name], batch=2, length=3, hidden=HIDDEN, device=CPU)
    leaves = [tensor.requires_grad_() for tensor in (given.x, *given.weights)]
    results = whole(NativeScan, UNITS[name], None, reverse=True)(leaves[0], None, *leaves[1:])
    passes = [torch.autograd.grad([part.sum() for part in results], leaves, retain_graph=True) for _ in range(2)]
    assert all(map(torch.equal, *passes))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["lrn", "sru", "pair sru"])
def test_the_number_of_threads_changes_no_bit(name: str, dtype: torch.dtype) -> None:
    batch, length, hidden = 67, 3, 131  # more than a thread takes alone, and no multiple of anything
    given = inputs(UNITS[name], batch=batch, length=length, hidden=hidden, device=CPU, dtype=dtype)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        run = whole(NativeScan, UNITS[name], masks(batch, length)[1], reverse=False)
        results.append(outputs_and_gradients(run, given.flat))
    for alone, shared in zip(*results, strict=True):
        assert torch.equal(alone, shared)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", UNITS)
def test_what_is_not_finite_comes_through(name: str, bad: float) -> None:
    """Nowhere is a number where the equation has none, in values and gradients, and other rows do not notice."""
    unit = UNITS[name]
    clean, _, weights = inputs(unit, batch=3, length=4, hidden=5, device=CPU)
    ours, reference = whole(NativeScan, unit, None, reverse=False), equation(unit, None, reverse=False)
    untouched: list[Tensor] = outputs_and_gradients(ours, [clean, None, *weights])
    for column in range(0, clean.size(-1), 5):
        x = clean.clone()
        x[:, 1, 1, column] = bad
        found, wanted = (outputs_and_gradients(run, [x, None, *weights]) for run in (ours, reference))
        for number, (mine, right) in enumerate(zip(found, wanted, strict=True)):
            assert not (mine.isfinite() & ~right.isfinite()).any(), (column, number)
        for place, (mine, before) in enumerate(zip(found[:3], untouched, strict=False)):  # x and what comes of it
            rows = 2 if place == 1 else 1
            assert torch.equal(mine.movedim(rows, 0)[::2], before.movedim(rows, 0)[::2]), column
