"""Dropout whose mask is a function of a key and of places, so that no mask is kept for the gradient.

A layer gets the masks of the current training batch from `current`. The C kernel, the Triton kernel and the PyTorch
operations compute the same mask, in all types and with any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.dispatch import choose
from nmt.ops.dropout.draws import Draw, Masks, among, batch_key, current, masked_by, of_parameters
from nmt.ops.dropout.reference import reference_dropout

__all__ = ["Draw", "Masks", "among", "batch_key", "current", "dropout", "layer_dropout", "masked_by", "of_parameters"]


def dropout(x: Tensor, p: float, *, draw: Draw | None = None) -> Tensor:
    """Zero each value of `x` with probability `p` and multiply the others by 1 / (1 - p); the type stays.

    0 <= p <= 1, exact to 2**-32. `draw` selects the random numbers: x [..., W] is treated as rows of W values, one for
    each place. Without `draw` the mask comes from torch's generator: on a CPU from a single number of it.
    """
    if not 0 < p < 1 or x.numel() == 0:
        return F.dropout(x, p)
    if draw is None:
        if x.device.type != "cpu":
            return F.dropout(x, p)
        draw = Draw(int(torch.empty((), dtype=torch.int64).random_()))
    rows = x.numel() // x.size(-1) if draw.places is None else len(draw.places)
    kernels = {"native": "nmt.ops.dropout.native:dropout_native", "triton": "nmt.ops.dropout.triton:dropout_triton"}
    run = choose("dropout", reference_dropout, like=x, **kernels)
    flat = x.reshape(rows, -1)
    return (run(flat, p, draw) if run is reference_dropout else by_kernel(run, flat, p, draw)).reshape(x.shape)


def by_kernel(run: Callable[[Tensor, float, Draw], Tensor], x: Tensor, p: float, draw: Draw) -> Tensor:
    """Dropout with a gradient by `run`, a kernel for x [N, W]."""
    result: Tensor = _Dropout.apply(run, x, p, draw)
    return result


class _Dropout(torch.autograd.Function):
    """Dropout by a kernel, which computes the mask again for the gradient."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[Tensor, float, Draw], Tensor], x: Tensor, p: float, draw: Draw) -> Tensor:
        ctx.run, ctx.p, ctx.draw = run, p, draw
        return run(x, p, draw)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return None, ctx.run(gradients[0], ctx.p, ctx.draw), None, None


def layer_dropout(x: Tensor, p: float, *, layer: int, position: int = 0) -> Tensor:
    """`dropout` in layer number `layer` of a model, of x [B, T, ...] or, at one `position`, [B, W].

    It uses the masks of `masked_by` if there are any, else new masks.
    """
    masks = current()
    return dropout(x, p, draw=None if masks is None else masks.draw(x, layer=layer, position=position))
