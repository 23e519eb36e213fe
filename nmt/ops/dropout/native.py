"""Dropout with the C kernel, which makes the mask anew for the gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.dropout.draws import Draw
from nmt.ops.dropout.reference import threshold
from nmt.ops.native import kernel


def native_dropout(x: Tensor, p: float, draw: Draw) -> Tensor:
    """See `nmt.ops.dropout.dropout`; x [N, W] in fp32 or bf16 on a CPU, 0 < p < 1."""
    result: Tensor = _Dropout.apply(x, p, draw)
    return result


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, draw: Draw) -> Tensor:
        ctx.p, ctx.draw = p, draw
        return _masked(x, p, draw)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _masked(gradients[0], ctx.p, ctx.draw), None, None


def _masked(x: Tensor, p: float, draw: Draw) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    places = None if draw.places is None else draw.places.contiguous()
    run = kernel("dropout", x.dtype)
    run(x, out, places, *x.shape, draw.key, draw.layer, threshold(p), 1 / (1 - p))
    return out
