"""The product with a weight matrix and its gradients: by the C kernels in bf16 on a CPU that computes in it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.linear.matrix import PackedMatrix, packable
from nmt.ops.native import column_sums
from nmt.ops.recurrence import product_type

__all__ = ["linear"]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., K] times the transposed weight [M, K], plus bias [M], in the type that autocast asks for.

    The same as `torch.nn.functional.linear`. Where a gradient is wanted and `PackedMatrix` can, it computes; the
    gradients of weight and bias then are sums in fp32.
    """
    dtype = product_type(x)
    if torch.is_grad_enabled() and weight.requires_grad and x.numel() and packable(weight, dtype):
        result: Tensor = _Linear.apply(x, weight, bias)
        return result
    return F.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.reshape(-1, x.size(-1)).to(torch.bfloat16)
        rows = rows if rows.stride(1) == 1 else rows.contiguous()
        result = torch.empty(*x.shape[:-1], len(weight), dtype=torch.bfloat16)
        PackedMatrix(weight).forward(rows, out=result.view(len(rows), -1), bias=bias)
        ctx.save_for_backward(rows, weight)
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        d_rows = gradients[0].reshape(len(x), -1)
        d_rows = d_rows if d_rows.stride(1) == 1 else d_rows.contiguous()
        matrix, dx, d_weight, d_bias = PackedMatrix(weight), None, None, None
        if ctx.needs_input_grad[0]:
            dx = torch.empty(ctx.shape, dtype=ctx.dtype)
            matrix.backward(d_rows, out=dx.view(len(x), -1))
        if ctx.needs_input_grad[1]:
            d_weight = matrix.weight_gradient(d_rows, x)
        if ctx.needs_input_grad[2]:
            d_bias = column_sums(d_rows)
        return dx, d_weight, d_bias
