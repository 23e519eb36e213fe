"""The Triton kernels of units whose steps need no matrix product, and of pairs of them, against their equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.ops import LRN, SRU
from nmt.ops.unit import Sizes, States, steps_of
from tests.ops.scan_units import UNITS, equation, inputs, whole
from tests.ops.triton.comparison import assert_equal, make_mask, outputs_and_gradients, randn

scan = pytest.importorskip("nmt.ops.scan.triton", reason="Triton is not installed")

BATCH, LENGTH, HIDDEN = 3, 4, 20  # 20 channels are no multiple of a block

FORMS = [  # mask, initial state, reverse, (block, steps unrolled, stages)
    ("none", False, False, (16, 1, 1)),
    ("none", True, True, None),
    ("padding", False, True, (32, 1, 3)),
    ("holes", True, False, (16, 4, 1)),
    ("holes", True, True, (16, 3, 1)),
    ("holes", False, False, (32, 8, 1)),
]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int, int] | None], None]:
    """Launch all kernels so, in place of the rule."""

    def choose(launch: tuple[int, int, int] | None) -> None:
        if launch is not None:
            monkeypatch.setattr(scan, "launch_for", lambda *_, **__: scan.Launch(*launch))

    return choose


FORMS_OF = [(name, FORMS[i]) for place, name in enumerate(UNITS) for i in range(place % 2, len(FORMS), 2)]
"""Of each unit every other form; units and pairs run the same kernels."""


@pytest.mark.parametrize(("name", "form"), FORMS_OF)
def test_outputs_and_gradients(
    name: str,
    form: tuple[str, bool, bool, tuple[int, int, int] | None],
    launched: Callable[[tuple[int, int, int] | None], None],
    device: torch.device,
) -> None:
    mask, started, reverse, launch = form
    launched(launch)
    unit, live = UNITS[name], make_mask(mask, BATCH, LENGTH, device)
    given = inputs(unit, batch=BATCH, length=LENGTH, hidden=HIDDEN, device=device, started=started)
    kernel = whole(scan.TritonScan, unit, live, reverse=reverse)
    assert_equal(kernel, equation(unit, live, reverse=reverse), given.flat)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["lrn", "olrn", "sru", "ssru", "min_lstm", "pair sru"])
def test_low_precision_storage_with_fp32_state(name: str, dtype: torch.dtype, device: torch.device) -> None:
    unit, mask = UNITS[name], make_mask("padding", 2, LENGTH, device)
    given = inputs(unit, batch=2, length=LENGTH, hidden=HIDDEN, device=device, dtype=dtype)
    kernel = whole(scan.TritonScan, unit, mask, reverse=False)
    outputs, last = kernel(*given.flat)
    assert (outputs.dtype, last.dtype) == (dtype, torch.float32)
    slack = unit.cells  # steps that start from a state that was kept in low precision
    assert_equal(kernel, equation(unit, mask, reverse=False), given.flat, storage=dtype, slack=slack)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_relu_of_ssru_has_the_gradient_of_what_it_was_in_fp32(dtype: torch.dtype, device: torch.device) -> None:
    """c is 1 + 2^-11 after the first step, which these types round to 1, and 2^-12 after the second."""
    x = torch.tensor([[0, 1], [0, -1]], dtype=dtype, device=device)[None, None].requires_grad_()
    state = torch.tensor([0, 1 + 2**-10], dtype=torch.float32, device=device).view(1, 2, 1, 1)
    outputs, _ = whole(scan.TritonScan, UNITS["ssru"], None, reverse=False)(x, state, torch.zeros(1, 1, device=device))
    assert outputs[0, 0, 1].item() == 2**-12
    (dx,) = torch.autograd.grad(outputs[0, 0, 1].sum(), x)
    assert dx[0, 0, :, 1].tolist() == [0.25, 0.5]


@pytest.mark.parametrize("name", ["lrn", "sru", "pair sru"])
def test_both_directions_in_one_launch_are_the_two_alone(name: str, device: torch.device) -> None:
    unit, mask = UNITS[name], make_mask("holes", 2, LENGTH, device)
    given = inputs(unit, batch=2, length=LENGTH, hidden=HIDDEN, device=device, directions=2)

    def apart(x: Tensor, state: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        runs = [
            whole(scan.TritonScan, unit, mask, reverse=d == 1)(*(tensor[d : d + 1] for tensor in (x, state, *weights)))
            for d in (0, 1)
        ]
        return tuple(torch.cat(parts) for parts in zip(*runs, strict=True))

    both = outputs_and_gradients(whole(scan.TritonScan, unit, mask, reverse=False), given.flat)
    for a, b in zip(both, outputs_and_gradients(apart, given.flat), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(("name", "masked"), [("lrn tanh", True), ("olrn", False), ("ssru", True), ("pair sru", True)])
def test_single_steps_are_the_whole_sequence(name: str, masked: bool, device: torch.device) -> None:
    unit, mask = UNITS[name], make_mask("holes", BATCH, LENGTH, device) if masked else None
    given = inputs(unit, batch=BATCH, length=LENGTH, hidden=HIDDEN, device=device)
    assert given.state is not None
    cell = unit.with_weights([weight[0] for weight in given.weights])
    sizes = Sizes(LENGTH, BATCH, HIDDEN, torch.float32, device)
    kernel, states = scan.TritonScan(cell, sizes), States.empty(unit.states, LENGTH + 1, sizes)
    states.put(0, given.state[0])
    x = given.x[0]
    live = [None if mask is None else mask[:, t : t + 1].view(torch.uint8) for t in range(LENGTH)]
    steps = steps_of(x.split(1, 1), states.at(0, LENGTH), states.at(1, LENGTH + 1), live)
    for step in steps:
        kernel.forward(step)

    leaves = [tensor.requires_grad_() for tensor in (given.x, given.state, *given.weights)]
    outputs, last = whole(scan.TritonScan, unit, mask, reverse=False)(*leaves)
    torch.testing.assert_close(states.operand[1:].transpose(0, 1), outputs[0])
    torch.testing.assert_close(states.parts[:, -1], last[0])

    d_outputs, gradient = (
        randn(*outputs.shape[1:], device=device, seed=5),
        randn(*last.shape[1:], device=device, seed=6),
    )
    wanted = torch.autograd.grad((outputs, last), leaves, (d_outputs[None], gradient[None].clone()))
    dx = torch.full_like(x, torch.nan)
    for t in reversed(range(LENGTH)):
        last_step = t == LENGTH - 1  # h's gradient in two parts: one as what the step after it returned
        d_output, pending = (None, d_outputs[:, t]) if last_step else (d_outputs[:, t : t + 1], None)
        returned = kernel.backward(steps[t], gradient, pending=pending, d_output=d_output, dx=dx[:, t : t + 1])
        assert returned is None
    d_weights = kernel.weight_gradients(states.at(0, LENGTH), dx.transpose(0, 1))
    for ours, right in zip([dx, gradient, *d_weights], wanted, strict=True):
        torch.testing.assert_close(ours, right[0])


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "time first": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "a part of wider rows": lambda x: torch.cat([x, x], -1)[..., : x.size(-1)],
    "channels apart": lambda x: torch.stack([x, x], -1)[..., 0],
    "every other step": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
    "one sentence repeated": lambda x: x[:, :1].expand_as(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_the_input(layout: str, device: torch.device) -> None:
    given = LAYOUTS[layout](randn(1, 2, 3, 3 * HIDDEN, device=device))
    run = whole(scan.TritonScan, LRN(), None, reverse=False)
    for ours, wanted in zip(
        outputs_and_gradients(lambda x: run(x, None), [given]),
        outputs_and_gradients(lambda x: run(x, None), [LAYOUTS["time first"](given)]),
        strict=True,
    ):
        assert torch.equal(ours, wanted)


def test_gradients_and_states_of_any_layout(device: torch.device) -> None:
    x = randn(1, 2, 3, 3 * HIDDEN, device=device).requires_grad_()
    state = randn(1, 1, 2, 2 * HIDDEN, device=device, seed=1)[..., HIDDEN:]
    mask = torch.ones(3, 2, dtype=torch.int64, device=device).t()
    gradients = []
    for function in (whole(scan.TritonScan, LRN(), mask, reverse=False), equation(LRN(), mask, reverse=False)):
        outputs, last = function(x, state)
        gradients += torch.autograd.grad(outputs.sum() + last.sum(), x)  # expanded gradients, stride 0
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("used", ["outputs", "last"])
def test_one_of_the_results_may_go_unused(used: str, device: torch.device) -> None:
    given = inputs(SRU(), batch=2, length=3, hidden=4, device=device)
    index = ("outputs", "last").index(used)

    def one(function: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
        return lambda *tensors: function(*tensors)[index : index + 1]

    kernel, reference = (make(SRU()) for make in (_kernel, _equation))
    assert_equal(one(kernel), one(reference), given.flat)


def _kernel(unit: Any) -> Any:
    return whole(scan.TritonScan, unit, None, reverse=False)


def _equation(unit: Any) -> Any:
    return equation(unit, None, reverse=False)


def test_gradients_of_weights_are_the_same_bits_every_time(device: torch.device) -> None:
    given = inputs(SRU(), batch=BATCH, length=LENGTH, hidden=HIDDEN, device=device)
    first, again = (outputs_and_gradients(_kernel(SRU()), given.flat) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_large_gates_saturate(device: torch.device) -> None:
    x = torch.full((1, 1, 2, 3), 1e4, device=device)
    x[..., 0] = -1e4
    outputs, _ = _kernel(LRN())(x, torch.ones(1, 1, 1, 1, device=device))
    assert outputs.tolist() == [[[[1.0], [1.0]]]]  # i = 0, f = 1


@pytest.mark.parametrize(("batch", "length"), [(2, 0), (0, 3), (0, 0)])
@pytest.mark.parametrize("name", ["lrn", "pair sru"])
def test_without_steps_or_rows_the_state_stays(name: str, batch: int, length: int, device: torch.device) -> None:
    given = inputs(UNITS[name], batch=batch, length=length, hidden=HIDDEN, device=device)
    outputs, last, dx, d_state, *d_weights = outputs_and_gradients(_kernel(UNITS[name]), given.flat)
    assert outputs.shape == (1, batch, length, HIDDEN) and torch.equal(last, given.state)
    assert dx.shape == given.x.shape and d_state.shape == last.shape
    assert not any(gradient.any() for gradient in d_weights)
