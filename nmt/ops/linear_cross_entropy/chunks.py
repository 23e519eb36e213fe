"""The loop over chunks of rows: logits, then losses and, in place, the gradient of the logits, then products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.dispatch import choose
from nmt.ops.linear_cross_entropy.reference import Loss, linear_cross_entropy_reference
from nmt.ops.matrices.training import matrix_of
from nmt.ops.sizes import aligned_rows

KERNELS: Final = {
    "native": "nmt.ops.linear_cross_entropy.native:linear_cross_entropy_native",
    "triton": "nmt.ops.linear_cross_entropy.triton:linear_cross_entropy_triton",
}
CPU_ROWS = 1024
"""Rows of a chunk. With this many the matrix products are as fast as with all rows at once; with fewer, adding up the
gradient of the table takes longer."""
GPU_ROWS = 4096
"""The same on a GPU, which needs more rows to be busy."""


class Losses(NamedTuple):
    """The losses of some words; only the total is differentiable."""

    total: Tensor
    """The weighted sum of the losses, a scalar."""
    losses: Tensor
    """The loss of each word, smoothed, in nats."""
    nll: Tensor
    """The negative log-likelihood of each word, in nats: its cross entropy without smoothing."""


class Result(NamedTuple):
    """Losses [N] as in `Losses`, and the gradients of their weighted sum in features and table, if requested."""

    losses: Tensor
    nll: Tensor
    features: Tensor | None
    table: Tensor | None


@torch.no_grad()
def chunked(
    features: Tensor,
    table: Tensor,
    *,
    targets: Tensor,
    weights: Tensor,
    loss: Loss,
    dtype: torch.dtype,
    needed: tuple[bool, bool] | None,
) -> Result:
    """Losses [N] of features [N, E], and the `needed` gradients of their weighted sum; None: no gradients."""
    with torch.autocast(features.device.type, enabled=False):
        x, w = features.detach().to(dtype).contiguous(), matrix_of(table, dtype)
        rows = rows_of_chunk(len(x), most=most_rows(x))
        wide = torch.promote_types(dtype, torch.float32)
        losses = x.new_empty(len(x), dtype=wide)
        nll = losses if loss.is_nll else torch.empty_like(losses)
        dx = torch.empty_like(x) if needed and needed[0] else None
        dw: Tensor | None = None
        buffer = aligned_rows(rows, len(table), like=x)
        step = choose("linear_cross_entropy", linear_cross_entropy_reference, like=buffer, **KERNELS)
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            logits = buffer[: len(x[part])]
            w.forward(x[part], out=logits)
            factors = None if needed is None else weights[part]
            apart = None if loss.is_nll else nll[part]
            step(logits, targets[part], weights=factors, loss=loss, losses=losses[part], nll=apart)
            if dx is not None:
                w.backward(logits, out=dx[part])
            if needed and needed[1]:
                dw = w.weight_gradient(logits, x[part], to=dw)
        if needed and needed[1] and dw is None:
            dw = torch.zeros_like(table)
    return Result(
        losses, nll, None if dx is None else dx.to(features.dtype), None if dw is None else dw.to(table.dtype)
    )


def weighted_sum(
    features: Tensor, table: Tensor, *, weights: Tensor, compute: Callable[[tuple[bool, bool] | None], Result]
) -> Losses:
    """The losses of `compute`; their sum, weighted by `weights` [N], is differentiable in both tensors.

    `compute` is called with the gradients that are needed, in features and table, or None if none is needed.
    """
    if torch.is_grad_enabled() and (features.requires_grad or table.requires_grad):
        total, losses, nll = LinearCrossEntropy.apply(features, table, weights, compute)
        return Losses(total, losses, losses if nll is None else nll)
    found = compute(None)
    return Losses((found.losses * weights).sum(), found.losses, found.nll)


class LinearCrossEntropy(torch.autograd.Function):
    """Weighted sum of the losses, and the losses and negative log-likelihoods without a gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        table: Tensor,
        weights: Tensor,
        compute: Callable[[tuple[bool, bool] | None], Result],
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        result = compute(ctx.needs_input_grad[:2])
        # Not saved for autograd: these are results of the backward pass, not its inputs.
        ctx.gradients = result.features, result.table
        apart = None if result.nll is result.losses else result.nll  # autograd does not take the same tensor twice
        ctx.mark_non_differentiable(*(values for values in (result.losses, apart) if values is not None))
        return (result.losses * weights).sum(), result.losses, apart

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("linear_cross_entropy: the backward pass can run only once for each forward pass")
        gradients, ctx.gradients = ctx.gradients, None
        factor = upstream[0]
        if factor.is_cuda or factor.item() != 1.0:  # reading the value would stall a GPU
            gradients = [None if gradient is None else gradient.mul_(factor) for gradient in gradients]
        return (*gradients, None, None)


def most_rows(x: Tensor) -> int:
    """The most rows of a chunk on the device of `x`."""
    return GPU_ROWS if x.is_cuda else CPU_ROWS


def rows_of_chunk(count: int, *, most: int) -> int:
    """Rows of a chunk, chosen so that all chunks have about the same size."""
    chunks = max(1, -(-count // most))
    return max(1, -(-count // chunks))
