"""The loss and its gradient in Triton: one kernel for a chunk of the logits, which it turns into their gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from nmt.ops.linear_cross_entropy.chunks import Loss

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes

LONGEST_BLOCK: Final = 4096
WARPS: Final = 8


@triton.jit(do_not_specialize=["confidence", "rest", "constant"])
def loss_gradient_kernel(
    p_logits, p_target, p_weights, p_losses, s_row, V, confidence, rest, constant,
    GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """logits [N, V] become weight * d loss / d logits if GRADIENT; a program has a row and reads it twice.

    The loss of a target that is no id is NaN: looking for it on the host would stall the GPU.
    Running maximum and sums are kept for each place of the block and joined at the end of the row.
    """
    i_n = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    p_row = p_logits + i_n * s_row
    target = tl.load(p_target + i_n).to(tl.int32)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    exponentials = tl.zeros([BLOCK], tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    gold = tl.zeros([BLOCK], tl.float32)
    for v0 in tl.range(0, V, BLOCK, num_stages=3):
        v = v0 + o
        x = tl.load(p_row + v, mask=v < V, other=float("-inf")).to(tl.float32)
        new = tl.maximum(highest, x)
        known = tl.where(new == float("-inf"), 0.0, new)  # where no word has come by yet
        exponentials = exponentials * tl.exp2((highest - known) * 1.4426950408889634)
        exponentials += tl.exp2((x - known) * 1.4426950408889634)
        highest = new
        total += tl.where(v < V, x, 0.0)
        gold += tl.where(v == target, x, 0.0)
    top = tl.max(highest, 0)
    exponentials = tl.sum(exponentials * tl.exp2((highest - top) * 1.4426950408889634), 0)
    lse = top + tl.log(exponentials)
    loss = lse - confidence * tl.sum(gold, 0) - rest * tl.sum(total, 0) + constant
    tl.store(p_losses + i_n, tl.where((target >= 0) & (target < V), loss, float("nan")))
    if GRADIENT:
        weight = tl.load(p_weights + i_n).to(tl.float32)
        for v0 in tl.range(0, V, BLOCK, num_stages=3):
            v = v0 + o
            x = tl.load(p_row + v, mask=v < V, other=0.0).to(tl.float32)
            gradient = tl.exp2((x - lse) * 1.4426950408889634) - rest - tl.where(v == target, confidence, 0.0)
            tl.store(p_row + v, (gradient * weight).to(p_logits.dtype.element_ty), mask=v < V)


@torch.library.custom_op(
    "nmt::loss_gradient",
    mutates_args=("logits", "losses"),
    schema="(Tensor(a!) logits, Tensor targets, Tensor? weights, Tensor(b!) losses, float confidence, float rest,"
    " float constant) -> ()",
)
def loss_gradient_op(
    logits: Tensor,
    targets: Tensor,
    weights: Tensor | None,
    losses: Tensor,
    confidence: float,
    rest: float,
    constant: float,
) -> None:
    """See `linear_cross_entropy_triton`."""
    rows, words = logits.shape
    if rows == 0:
        return
    with torch.cuda.device_of(logits):
        loss_gradient_kernel[(rows,)](
            logits, targets.contiguous(), None if weights is None else weights.contiguous(), losses,
            logits.stride(0), words, confidence, rest, constant,
            GRADIENT=weights is not None, BLOCK=min(LONGEST_BLOCK, triton.next_power_of_2(words)), num_warps=WARPS,
        )  # fmt: skip


def linear_cross_entropy_triton(
    logits: Tensor, targets: Tensor, *, weights: Tensor | None, loss: Loss, losses: Tensor
) -> None:
    """See `nmt.ops.linear_cross_entropy.chunks.Step`; the rows of the logits are contiguous."""
    loss_gradient_op(logits, targets, weights, losses, loss.confidence, loss.rest, loss.constant)
