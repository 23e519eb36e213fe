"""The kernels of LRN and oLRN against their references."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from nmt.ops.lrn.reference import lrn_reference
from nmt.ops.olrn.reference import olrn_reference
from tests.ops.triton.comparison import assert_equal, make_mask, outputs_and_gradients, randn

lrn = pytest.importorskip("nmt.ops.lrn.triton", reason="Triton is not installed")
olrn = pytest.importorskip("nmt.ops.olrn.triton", reason="Triton is not installed")

UNITS: dict[str, tuple[int, Any, Any, Any]] = {
    "lrn": (3, lrn.lrn_triton, lrn.lrn_both_triton, lrn_reference),
    "olrn": (4, olrn.olrn_triton, olrn.olrn_both_triton, olrn_reference),
}
BATCH, LENGTH, HIDDEN = 3, 5, 20  # 20 channels are no multiple of a block

FORMS = [  # mask, initial state, reverse, (block, steps unrolled, stages)
    ("none", False, False, (16, 1, 1)),
    ("none", True, True, None),
    ("padding", False, True, (32, 1, 3)),
    ("holes", True, False, (16, 4, 1)),
    ("holes", True, True, (16, 3, 1)),
    ("holes", False, False, (32, 8, 1)),
]


def bound(function: Callable[..., Any], mask: torch.Tensor | None, **options: Any) -> Callable[..., Any]:
    return lambda x, h: function(x, h, mask, **options)


@pytest.mark.parametrize(("mask", "started", "reverse", "launch"), FORMS)
@pytest.mark.parametrize("tanh", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_outputs_and_gradients(
    unit: str, tanh: bool, mask: str, started: bool, reverse: bool, launch: tuple[int, ...] | None, device: torch.device
) -> None:
    parts, kernel, _, reference = UNITS[unit]
    x = randn(BATCH, LENGTH, parts * HIDDEN, device=device)
    h = randn(BATCH, HIDDEN, device=device, seed=1) if started else None
    live = make_mask(mask, BATCH, LENGTH, device)
    options = {"reverse": reverse, "tanh": tanh}
    assert_equal(bound(kernel, live, launch=launch, **options), bound(reference, live, **options), [x, h])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("unit", UNITS)
def test_low_precision_storage_with_fp32_state(unit: str, dtype: torch.dtype, device: torch.device) -> None:
    parts, kernel, _, reference = UNITS[unit]
    x = randn(2, LENGTH, parts * HIDDEN, device=device, dtype=dtype)
    h = randn(2, HIDDEN, device=device, seed=1)
    mask = make_mask("padding", 2, LENGTH, device)
    outputs, last = kernel(x, h, mask, reverse=False, tanh=False)
    assert outputs.dtype == dtype
    assert last.dtype == torch.float32
    options = {"reverse": False, "tanh": False}
    assert_equal(bound(kernel, mask, **options), bound(reference, mask, **options), [x, h], storage=dtype)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "time first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "a part of wider rows": lambda x: torch.cat([x, x], -1)[..., : x.size(-1)],
    "channels apart": lambda x: torch.stack([x, x], -1)[..., 0],
    "every other step": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "one sentence repeated": lambda x: x[:1].expand_as(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_of_the_input(layout: str, device: torch.device) -> None:
    x = randn(2, 3, 3 * HIDDEN, device=device)
    given = LAYOUTS[layout](x)
    right = LAYOUTS["time first"](given)
    run = partial(lrn.lrn_triton, mask=None, reverse=False, tanh=False)
    for ours, wanted in zip(
        outputs_and_gradients(lambda x: run(x, None), [given]),
        outputs_and_gradients(lambda x: run(x, None), [right]),
        strict=True,
    ):
        assert torch.equal(ours, wanted)


def test_gradients_and_states_of_any_layout(device: torch.device) -> None:
    x = randn(2, 3, 3 * HIDDEN, device=device).requires_grad_()
    h = randn(2, 2 * HIDDEN, device=device, seed=1)[:, HIDDEN:]
    mask = torch.ones(3, 2, dtype=torch.int64, device=device).t()
    outputs, last = lrn.lrn_triton(x, h, mask, reverse=False, tanh=False)
    (ours,) = torch.autograd.grad(outputs.sum() + last.sum(), x)  # expanded gradients, stride 0
    outputs, last = lrn_reference(x, h, mask, reverse=False, tanh=False)
    torch.testing.assert_close(ours, torch.autograd.grad(outputs.sum() + last.sum(), x)[0])


@pytest.mark.parametrize("unit", UNITS)
def test_both_directions_in_one_launch_are_the_two_alone(unit: str, device: torch.device) -> None:
    parts, one, both, _ = UNITS[unit]
    x = randn(2, LENGTH, 2, parts * HIDDEN, device=device)
    h = randn(2, 2, HIDDEN, device=device, seed=1)
    mask = make_mask("holes", 2, LENGTH, device)

    def apart(x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ahead, ahead_last = one(x[:, :, 0], h[0], mask, reverse=False, tanh=False)
        back, back_last = one(x[:, :, 1], h[1], mask, reverse=True, tanh=False)
        return torch.cat([ahead, back], -1), torch.stack([ahead_last, back_last])

    ours = outputs_and_gradients(lambda x, h: both(x, h, mask, tanh=False), [x, h])
    for a, b in zip(ours, outputs_and_gradients(apart, [x, h]), strict=True):
        assert torch.equal(a, b)


def test_large_gates_saturate(device: torch.device) -> None:
    x = torch.full((1, 2, 3), 1e4, device=device)
    x[..., 0] = -1e4
    outputs, _ = lrn.lrn_triton(x, torch.ones(1, 1, device=device), None, reverse=False, tanh=False)
    assert outputs.tolist() == [[[1.0], [1.0]]]  # i = 0, f = 1


def test_a_sequence_without_steps_returns_its_initial_state(device: torch.device) -> None:
    h = randn(2, HIDDEN, device=device)
    outputs, last = lrn.lrn_triton(torch.empty(2, 0, 3 * HIDDEN, device=device), h, None, reverse=False, tanh=False)
    assert outputs.shape == (2, 0, HIDDEN)
    assert torch.equal(last, h)
