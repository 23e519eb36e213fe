"""The barrier of the persistent ATR kernels: the interpreter runs all programs together, by turns.

Shows that slices and counters are right, and that every state a program reads of another's is ordered by barriers, a
release and an acquire (`tests.ops.triton.memory_order`); whether a GPU keeps that order the tests marked `gpu` show.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.kernel_check.comparison import TOLERANCES
from nmt.ops.atr.reference import atr_reference
from nmt.ops.recurrence import Recurrent
from tests.ops.triton.comparison import make_mask, randn

atr_kernels = pytest.importorskip("nmt.ops.atr.kernels", reason="Triton is not installed")

BATCH, LENGTH, HIDDEN = 5, 6, 32
BM, BN = 4, 16
GROUPS, BLOCKS = 2, 2
PROGRAMS = GROUPS * BLOCKS


def run_together(kernel: Any, *arguments: Any, programs: int = PROGRAMS) -> None:
    """All programs of a persistent launch, or only the first ones, at the same time."""
    constants = {"H": HIDDEN, "GATES": "twin", "TANH_CANDIDATE": False, "TANH_STATE": False, "MASKED": True}
    constants |= {"REVERSE": 1, "BOTH": False, "PERSISTENT": True, "PRECISION": "ieee", "BM": BM, "BN": BN, "KC": 16}
    kernel[(programs,)](*arguments, **constants)


def test_programs_exchange_states_through_memory(device: torch.device) -> None:
    if device.type != "cpu":
        pytest.skip("on a GPU programs run at the same time anyway")
    x, dout = (randn(BATCH, LENGTH, HIDDEN, device=device, seed=seed) for seed in (0, 4))
    weight = randn(HIDDEN, HIDDEN, device=device, seed=1) / HIDDEN**0.5
    bias, first = randn(HIDDEN, device=device, seed=2), randn(BATCH, HIDDEN, device=device, seed=3)
    live = make_mask("holes", BATCH, LENGTH, device)
    assert live is not None
    mask = live.to(torch.uint8)
    outputs, state = torch.empty_like(x), first.clone()
    counters = torch.zeros(GROUPS * atr_kernels.COUNTER.value, dtype=torch.int32)
    strides = (0, *x.stride()[:2])
    rest = (BATCH, LENGTH, 0, BATCH, 0)
    run_together(
        atr_kernels.atr_forward_kernel, x, weight, bias, mask, first, state, outputs, counters,
        *weight.stride(), *strides, *mask.stride(), *strides, *rest, LENGTH,
    )  # fmt: skip
    assert counters[:: atr_kernels.COUNTER.value].tolist() == [LENGTH * BLOCKS] * GROUPS

    leaves = [tensor.double().requires_grad_() for tensor in (x, first)]
    recurrent = Recurrent(weight.double(), bias.double())
    wanted, last = atr_reference(leaves[0], recurrent, leaves[1], live, reverse=True, activation="none", gates="twin")
    assert_close(outputs, wanted)
    assert_close(state, last)

    product, product0 = outputs @ weight.t(), first @ weight.t()
    dx, dq, dq0, dstate = (torch.empty_like(tensor) for tensor in (x, x, first, first))
    dstate.zero_()
    counters.zero_()
    run_together(
        atr_kernels.atr_backward_kernel, x, product, product0, weight, bias, mask, first, outputs, dout, dstate, dx, dq,
        dq0, counters, *strides, *mask.stride(), *strides, *strides, *strides, *rest, LENGTH + 1,
    )  # fmt: skip
    right = torch.autograd.grad(wanted, leaves, dout.double())
    assert_close(dx, right[0])
    assert_close(dstate, right[1])
    assert not dq[:, 0].any()  # where the last state is (the sequence runs backward): nothing was multiplied with it


def test_a_program_that_waits_in_vain_puts_out_nan(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    if device.type != "cpu":
        pytest.skip("on a GPU no program stays away")
    monkeypatch.setattr(atr_kernels, "MOST_POLLS", atr_kernels.tl.constexpr(20))
    x, weight = randn(BATCH, LENGTH, HIDDEN, device=device), torch.eye(HIDDEN)
    bias, first = torch.zeros(HIDDEN), torch.zeros(BATCH, HIDDEN)
    mask = torch.ones(BATCH, LENGTH, dtype=torch.uint8)
    outputs, state = torch.zeros_like(x), first.clone()
    counters = torch.zeros(GROUPS * atr_kernels.COUNTER.value, dtype=torch.int32)
    strides = (0, *x.stride()[:2])
    run_together(
        atr_kernels.atr_forward_kernel, x, weight, bias, mask, first, state, outputs, counters,
        *weight.stride(), *strides, *mask.stride(), *strides, BATCH, LENGTH, 0, BATCH, 0, LENGTH, programs=1,
    )  # fmt: skip
    ours = outputs[:BM, :, :BN]
    assert ours[:, -1].isfinite().all()  # the step that runs first waits for nobody
    assert ours[:, :-1].isnan().all()
    assert state[:BM, :BN].isnan().all()


def assert_close(ours: Tensor, right: Tensor) -> None:
    assert (ours.double() - right).norm() < TOLERANCES[torch.float32] * right.norm()
