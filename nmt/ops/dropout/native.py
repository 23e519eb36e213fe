"""Dropout with the C kernel: torch's generator is asked for one number, the mask is made of it in the kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.native import kernel


def native_dropout(x: Tensor, p: float) -> Tensor:
    """See `nmt.ops.dropout.dropout`; x in fp32 or bf16 on a CPU, 0 < p < 1."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    result: Tensor = _Dropout.apply(x, seed, p)
    return result


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: int, p: float) -> Tensor:
        ctx.seed, ctx.p = seed, p
        return _masked(x, seed=seed, p=p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _masked(gradients[0], seed=ctx.seed, p=ctx.p), None, None


def _masked(x: Tensor, *, seed: int, p: float) -> Tensor:
    """x times the mask of `seed`: the n-th value, counted as in a contiguous tensor, with the n-th factor."""
    x = x.contiguous()
    out = torch.empty_like(x)
    run = kernel("dropout", "pp i ii f", x.dtype)
    run(x, out, x.numel(), seed, round(p * 2**32), 1 / (1 - p))
    return out
