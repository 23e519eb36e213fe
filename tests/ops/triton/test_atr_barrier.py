"""The barrier of the persistent ATR kernels, with every program a process of its own over shared memory.

Shows that slices, counters and the order of stores and loads are right as written; the processor of a PC orders
memory more strictly than a GPU, whose turn comes in the tests marked `gpu`.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.ops.atr.reference import atr_reference
from nmt.ops.recurrence import Recurrent
from tests.ops.triton.comparison import TOLERANCE, make_mask, randn

atr_kernels = pytest.importorskip("nmt.ops.atr.kernels", reason="Triton is not installed")

BATCH, LENGTH, HIDDEN = 5, 6, 32
BM, BN = 4, 16
GROUPS, BLOCKS = 2, 2
PROGRAMS = GROUPS * BLOCKS


def run_program(program: int, kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
    """In a process of its own: run one program of the grid on the shared tensors themselves."""
    from triton.runtime import interpreter

    interpreter.GridExecutor._init_args_hst = lambda self, args, kwargs: (list(args), dict(kwargs))
    interpreter.GridExecutor._restore_args_dev = lambda self, *rest: None
    builder = type(interpreter.interpreter_builder)
    builder.set_grid_dim = lambda self, *size: setattr(self, "grid_dim", (PROGRAMS, 1, 1))
    builder.set_grid_idx = lambda self, *index: setattr(self, "grid_idx", (program, 0, 0))
    kernel[(1,)](*arguments, **constants)


def run_together(kernel: Any, *arguments: Any, programs: Iterable[int] = range(PROGRAMS)) -> None:
    """All programs of a persistent launch, or only some, at the same time."""
    constants = {"H": HIDDEN, "COUPLED": False, "TANH_CANDIDATE": False, "TANH_STATE": False, "MASKED": True}
    constants |= {"REVERSE": 1, "BOTH": False, "PERSISTENT": True, "PRECISION": "ieee", "BM": BM, "BN": BN, "KC": 16}
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=run_program, args=(program, kernel, arguments, constants)) for program in programs
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert codes == [0] * len(processes)


def shared(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format).share_memory_()


def test_programs_exchange_states_through_memory(device: torch.device) -> None:
    if device.type != "cpu":
        pytest.skip("on a GPU programs run at the same time anyway")
    x, dout = (
        shared(randn(BATCH, LENGTH, HIDDEN, device=device)),
        shared(randn(BATCH, LENGTH, HIDDEN, device=device, seed=4)),
    )
    weight = shared(randn(HIDDEN, HIDDEN, device=device, seed=1) / HIDDEN**0.5)
    bias, first = shared(randn(HIDDEN, device=device, seed=2)), shared(randn(BATCH, HIDDEN, device=device, seed=3))
    live = make_mask("holes", BATCH, LENGTH, device)
    mask = shared(live.to(torch.uint8))
    outputs, state = shared(torch.empty_like(x)), shared(first)
    counters = shared(torch.zeros(GROUPS * atr_kernels.COUNTER.value, dtype=torch.int32))
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

    product, product0 = shared(outputs @ weight.t()), shared(first @ weight.t())
    dx, dq, dq0, dstate = (shared(torch.empty_like(tensor)) for tensor in (x, x, first, first))
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
    x, weight = shared(randn(BATCH, LENGTH, HIDDEN, device=device)), shared(torch.eye(HIDDEN))
    bias, first = shared(torch.zeros(HIDDEN)), shared(torch.zeros(BATCH, HIDDEN))
    mask = shared(torch.ones(BATCH, LENGTH, dtype=torch.uint8))
    outputs, state = shared(torch.zeros_like(x)), shared(first)
    counters = shared(torch.zeros(GROUPS * atr_kernels.COUNTER.value, dtype=torch.int32))
    strides = (0, *x.stride()[:2])
    run_together(
        atr_kernels.atr_forward_kernel, x, weight, bias, mask, first, state, outputs, counters,
        *weight.stride(), *strides, *mask.stride(), *strides, BATCH, LENGTH, 0, BATCH, 0, LENGTH, programs=[0],
    )  # fmt: skip
    ours = outputs[:BM, :, :BN]
    assert ours[:, -1].isfinite().all()  # the step that runs first waits for nobody
    assert ours[:, :-1].isnan().all()
    assert state[:BM, :BN].isnan().all()


def assert_close(ours: Tensor, right: Tensor) -> None:
    assert (ours.double() - right).norm() < TOLERANCE[torch.float32] * right.norm()
