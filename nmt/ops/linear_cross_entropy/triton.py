"""The loss and its gradient in Triton: one kernel per chunk of logits, which replaces them by their gradient."""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.ops.linear_cross_entropy import Loss
from nmt.ops.triton_tools import LOG2_E

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes

LONGEST_BLOCK: Final = 1024
"""With twice as many values at a time, a thread needs twice the registers, and half as many rows are read at once."""
WARPS: Final = 4

LOWEST: Final = tl.constexpr(-3e38)
"""Below any logit, but finite, so that the distance to it is a number."""


@triton.jit
def _joined(highest, exponentials, x):
    """Add x to the running maximum and to the sum of exponentials relative to it; one exponential is enough, because
    the other is 1."""
    distant = tl.exp2(-tl.abs(x - highest) * LOG2_E)
    exponentials = tl.where(x > highest, exponentials * distant + 1.0, exponentials + distant)
    return tl.maximum(highest, x), exponentials


@triton.jit
def _gradient(x, v, target, lse, confidence, rest, weight):
    return (tl.exp2((x - lse) * LOG2_E) - rest - tl.where(v == target, confidence, 0.0)) * weight


@triton.jit(do_not_specialize=["confidence", "rest", "constant"])
def loss_gradient_kernel(
    p_logits, p_target, p_weights, p_losses, p_nll, s_row, V, confidence, rest, constant,
    GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """logits [N, V] become weight * d loss / d logits if GRADIENT; a program has a row and reads it twice.

    The loss of a target that is no id is NaN: checking this on the host would stall the GPU.
    Running maximum and sums are kept for each place of the block and joined at the end of the row. Only the last
    block checks which of its places are in the row; it reads and writes up to the beginning of the next row, so that
    with aligned rows its values are also moved several at a time.
    """
    i_n = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    p_row = p_logits + i_n * s_row
    target = tl.load(p_target + i_n).to(tl.int32)
    known = (target >= 0) & (target < V)
    gold = tl.load(p_row + target, mask=known, other=float("nan")).to(tl.float32)
    last = V // BLOCK * BLOCK
    highest = tl.full([BLOCK], LOWEST, tl.float32)
    exponentials = tl.zeros([BLOCK], tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for v0 in tl.range(0, last, BLOCK, num_stages=3):
        x = tl.load(p_row + v0 + o).to(tl.float32)
        highest, exponentials = _joined(highest, exponentials, x)
        total += x
    x = tl.load(p_row + last + o, mask=last + o < s_row, other=0.0).to(tl.float32)
    highest, exponentials = _joined(highest, exponentials, tl.where(last + o < V, x, float("-inf")))
    total += tl.where(last + o < V, x, 0.0)
    top = tl.max(highest, 0)
    exponentials = tl.sum(exponentials * tl.exp2((highest - top) * LOG2_E), 0)
    lse = top + tl.log(exponentials)
    tl.store(p_losses + i_n, lse - confidence * gold - rest * tl.sum(total, 0) + constant)
    if p_nll is not None:
        tl.store(p_nll + i_n, lse - gold)
    if GRADIENT:
        weight = tl.load(p_weights + i_n).to(tl.float32)
        for v0 in tl.range(0, last, BLOCK, num_stages=3):
            x = tl.load(p_row + v0 + o).to(tl.float32)
            gradient = _gradient(x, v0 + o, target, lse, confidence, rest, weight)
            tl.store(p_row + v0 + o, gradient.to(p_logits.dtype.element_ty))
        x = tl.load(p_row + last + o, mask=last + o < s_row, other=0.0).to(tl.float32)
        gradient = _gradient(x, last + o, target, lse, confidence, rest, weight)
        gradient = tl.where(last + o < V, gradient, 0.0)
        tl.store(p_row + last + o, gradient.to(p_logits.dtype.element_ty), mask=last + o < s_row)


def linear_cross_entropy_triton(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor, nll: Tensor | None = None
) -> None:
    """See `nmt.ops.linear_cross_entropy.linear_cross_entropy_reference`."""
    rows, words = logits.shape
    if rows == 0:
        return
    step = logits.stride(0)
    whole = logits.as_strided((rows, step), (step, 1))  # including the memory between rows
    with torch.cuda.device_of(logits):
        loss_gradient_kernel[(rows,)](
            whole, targets.contiguous(), None if weights is None else weights.contiguous(), losses, nll, step, words,
            *loss,
            GRADIENT=weights is not None, BLOCK=min(LONGEST_BLOCK, triton.next_power_of_2(words)), num_warps=WARPS,
        )  # fmt: skip
