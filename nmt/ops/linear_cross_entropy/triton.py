"""Linear map and label-smoothed cross entropy in one, in Triton: logits exist for some rows at a time only.

For each chunk of rows: one GEMM for the logits, one kernel that turns them, where they lie, into their gradient and
gives the losses, and two GEMMs for the gradients of features and table. The weight of each token in the sum is known
beforehand, so all of that happens in the forward pass, and the backward pass is a multiplication.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.ops.cross_entropy.reference import smoothing_terms

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes

CHUNK_VALUES: Final = 2**26
"""Logits in memory at a time: 2048 rows of 32768 words, 128 MB in bf16."""

LONGEST_BLOCK: Final = 4096
WARPS: Final = 8


@triton.jit(do_not_specialize=["confidence", "rest", "constant"])
def loss_gradient_kernel(
    p_logits, p_target, p_weights, p_losses, s_row, V, confidence, rest, constant,
    GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """logits [N, V] become weight * d loss / d logits if GRADIENT; a program has a row and reads it twice.

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
    tl.store(p_losses + i_n, loss)
    if GRADIENT:
        weight = tl.load(p_weights + i_n).to(tl.float32)
        for v0 in tl.range(0, V, BLOCK, num_stages=3):
            v = v0 + o
            x = tl.load(p_row + v, mask=v < V, other=0.0).to(tl.float32)
            gradient = tl.exp2((x - lse) * 1.4426950408889634) - rest - tl.where(v == target, confidence, 0.0)
            tl.store(p_row + v, (gradient * weight).to(p_logits.dtype.element_ty), mask=v < V)


def losses_and_gradient(
    logits: Tensor, targets: Tensor, weights: Tensor, *, label_smoothing: float, gradient: bool = True
) -> Tensor:
    """Losses fp32 [N] of logits [N, V], which become the gradient of sum(weights * losses) if `gradient`.

    targets [N] are ids, weights [N]; values of a row of logits must lie side by side. The loss is that of
    `nmt.ops.cross_entropy`.
    """
    rows, words = logits.shape
    losses = logits.new_empty(rows, dtype=torch.float32)
    if rows:
        with torch.cuda.device_of(logits):
            loss_gradient_kernel[(rows,)](
                logits, targets.contiguous(), weights.contiguous(), losses, logits.stride(0), words,
                *smoothing_terms(words, label_smoothing),
                GRADIENT=gradient, BLOCK=min(LONGEST_BLOCK, triton.next_power_of_2(words)), num_warps=WARPS,
            )  # fmt: skip
    return losses


@torch.library.custom_op(
    "nmt::linear_cross_entropy",
    mutates_args=(),
    schema="(Tensor features, Tensor table, Tensor targets, Tensor weights, float label_smoothing, bool gradients)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def linear_cross_entropy_op(
    features: Tensor, table: Tensor, targets: Tensor, weights: Tensor, label_smoothing: float, gradients: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """sum(weights * losses), losses fp32 [N], and the gradients of features and table, empty without `gradients`.

    features [N, E] in the type of the products, table [V, E], which is rounded to that; its gradient has its own
    type and is summed over the chunks in fp32.
    """
    losses = features.new_empty(len(features), dtype=torch.float32)
    d_features, d_table = _gradient_room(features, table, gradients=gradients)
    summed = torch.zeros_like(table, dtype=torch.float32) if gradients else d_table
    words = table.to(features.dtype)
    rows = max(1, CHUNK_VALUES // len(table))
    with torch.autocast(features.device.type, enabled=False):
        for start in range(0, len(features), rows):
            part = slice(start, start + rows)
            x = features[part]
            logits = torch.mm(x, words.t())
            losses[part] = losses_and_gradient(
                logits, targets[part], weights[part], label_smoothing=label_smoothing, gradient=gradients
            )
            if gradients:
                torch.mm(logits, words, out=d_features[part])
                summed += torch.mm(logits.t(), x)
    if gradients:
        d_table.copy_(summed)
    return (losses * weights).sum(), losses, d_features, d_table


def _gradient_room(features: Tensor, table: Tensor, *, gradients: bool) -> tuple[Tensor, Tensor]:
    shapes = (features.shape, table.shape) if gradients else ((0,), (0,))
    return features.new_empty(shapes[0]), table.new_empty(shapes[1])


@linear_cross_entropy_op.register_fake
def _(
    features: Tensor, table: Tensor, targets: Tensor, weights: Tensor, label_smoothing: float, gradients: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    losses = features.new_empty(len(features), dtype=torch.float32)
    return losses.new_empty(()), losses, *_gradient_room(features, table, gradients=gradients)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[2:])


def _backward(ctx: Any, d_sum: Tensor | None, *unused: Tensor | None) -> tuple[Tensor | None, ...]:
    if d_sum is None:
        return (None,) * 6
    d_features, d_table = ctx.saved_tensors
    return d_features * d_sum, d_table * d_sum, None, None, None, None


linear_cross_entropy_op.register_autograd(_backward, setup_context=_setup_context)


def linear_cross_entropy_triton(
    features: Tensor, table: Tensor, targets: Tensor, weights: Tensor, *, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """The differentiable sum(weights * losses), a scalar, and the losses [N], detached.

    losses are those of `nmt.ops.cross_entropy` for the logits features @ table^T; features [N, E], table [V, E],
    targets [N]; weights [N], the weight of each token, get no gradient. Under autocast the products are computed in
    its type.
    """
    device = features.device.type
    if torch.is_autocast_enabled(device):
        features = features.to(torch.get_autocast_dtype(device))
    gradients = torch.is_grad_enabled() and (features.requires_grad or table.requires_grad)
    total, losses, _, _ = linear_cross_entropy_op(features, table, targets, weights, label_smoothing, gradients)
    return total, losses.detach()
