"""The kernels of SRU against its reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt.ops.sru.reference import sru_reference
from tests.ops.triton.comparison import assert_equal, make_mask, outputs_and_gradients, randn

sru = pytest.importorskip("nmt.ops.sru.triton", reason="Triton is not installed")

BATCH, LENGTH, HIDDEN = 3, 5, 20

FORMS = [  # mask, initial state, reverse, (block, steps unrolled, stages)
    ("none", "", False, (16, 1, 1)),
    ("none", "hc", True, None),
    ("padding", "", True, (32, 1, 3)),
    ("holes", "hc", False, (16, 4, 1)),
    ("holes", "hc", True, (16, 3, 1)),
    ("holes", "h", False, (32, 8, 1)),
    ("holes", "c", True, (32, 1, 1)),
]


def inputs(device: torch.device, *, states: str = "hc", dtype: torch.dtype = torch.float32) -> list[Any]:
    """projected, both peepholes, h and c."""
    x = randn(BATCH, LENGTH, 4 * HIDDEN, device=device, dtype=dtype)
    peepholes = randn(2, HIDDEN, device=device, seed=1).unbind(0)
    state = [randn(BATCH, HIDDEN, device=device, seed=ord(name)) if name in states else None for name in "hc"]
    return [x, *peepholes, *state]


def bound(function: Callable[..., Any], mask: torch.Tensor | None, **options: Any) -> Callable[..., Any]:
    return lambda x, v_f, v_r, h, c: function(x, v_f, v_r, h, c, mask, **options)


@pytest.mark.parametrize(("mask", "states", "reverse", "launch"), FORMS)
def test_outputs_and_gradients(
    mask: str, states: str, reverse: bool, launch: tuple[int, ...] | None, device: torch.device
) -> None:
    live = make_mask(mask, BATCH, LENGTH, device)
    kernel = bound(sru.sru_triton, live, reverse=reverse, launch=launch)
    assert_equal(kernel, bound(sru_reference, live, reverse=reverse), inputs(device, states=states))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_storage_with_fp32_state(dtype: torch.dtype, device: torch.device) -> None:
    tensors = inputs(device, dtype=dtype)
    mask = make_mask("padding", BATCH, LENGTH, device)
    outputs, h, c = sru.sru_triton(*tensors, mask, reverse=False)
    assert (outputs.dtype, h.dtype, c.dtype) == (dtype, torch.float32, torch.float32)
    assert_equal(
        bound(sru.sru_triton, mask, reverse=False), bound(sru_reference, mask, reverse=False), tensors, storage=dtype
    )


def test_both_directions_in_one_launch_are_the_two_alone(device: torch.device) -> None:
    x = randn(2, LENGTH, 2, 4 * HIDDEN, device=device)
    v_f, v_r = randn(2, 2, HIDDEN, device=device, seed=1).unbind(0)
    h, c = randn(2, 2, 2, HIDDEN, device=device, seed=2).unbind(0)
    mask = make_mask("holes", 2, LENGTH, device)

    def apart(x: Any, v_f: Any, v_r: Any, h: Any, c: Any) -> tuple[torch.Tensor, ...]:
        runs = [
            sru.sru_triton(x[:, :, d], v_f[d], v_r[d], h[d], c[d], mask, reverse=d == 1, launch=(16, 1, 1))
            for d in (0, 1)
        ]
        outputs, h_last, c_last = zip(*runs, strict=True)
        return torch.cat(outputs, -1), torch.stack(h_last), torch.stack(c_last)

    def both(x: Any, v_f: Any, v_r: Any, h: Any, c: Any) -> Any:
        return sru.sru_both_triton(x, v_f, v_r, h, c, mask, launch=(16, 1, 1))

    tensors = [x, v_f, v_r, h, c]
    for a, b in zip(outputs_and_gradients(both, tensors), outputs_and_gradients(apart, tensors), strict=True):
        assert torch.equal(a, b)


def test_peephole_gradients_are_the_same_bits_every_time(device: torch.device) -> None:
    tensors = inputs(device)
    kernel = bound(sru.sru_triton, None, reverse=False)
    first, again = (outputs_and_gradients(kernel, tensors) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_the_memories_kept_for_the_backward_pass_have_no_gradient(device: torch.device) -> None:
    x = randn(1, 1, 2, 4, device=device).requires_grad_()
    peephole = torch.ones(1, 1, device=device)
    _, memories, _, _ = sru.sru_op(x, peephole, peephole, None, None, None, False, None)
    assert not memories.requires_grad
