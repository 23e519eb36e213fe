"""A product with a matrix in each step of a loop over time, with or without layer norm, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.dispatch import use_native
from nmt.ops.matrices import matrix_of
from nmt.ops.native import column_sums, kernel
from nmt.ops.recurrence import EPSILON, Projection, layer_norm

if TYPE_CHECKING:
    from nmt.ops.unit import Sizes


class RowNorm:
    """Layer norm of rows [N, W] by the C kernels, in consecutive parts, with results in the type of the rows."""

    def __init__(self, scale: Tensor, offset: Tensor, widths: Sequence[int]) -> None:
        self._scale, self._offset = scale.detach().float().contiguous(), offset.detach().float().contiguous()
        self._parts = torch.tensor(list(widths)), len(widths)

    def forward(self, x: Tensor, *, out: Tensor) -> None:
        """Normalise x [N, W]."""
        kernel("norm", x.dtype)(x, self._scale, self._offset, *self._parts, out, *x.shape)

    def backward(self, x: Tensor, d_out: Tensor, *, out: Tensor) -> None:
        """The gradient of x; `out` may be d_out."""
        kernel("norm_gradient", x.dtype)(x, self._scale, *self._parts, d_out, out, *x.shape)


def normalized(x: Tensor, scale: Tensor, offset: Tensor, *, widths: Sequence[int]) -> Tensor:
    """`layer_norm` of x [..., W]; where the C kernels compute it, the type of x stays."""
    if not (x.numel() and use_native(x)):
        return layer_norm(x, scale, offset, widths=widths)
    result: Tensor = _Normalized.apply(x, scale, offset, widths)
    return result


class _Normalized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, offset: Tensor, widths: Sequence[int]) -> Tensor:
        ctx.norm, ctx.widths, rows = RowNorm(scale, offset, widths), widths, x.contiguous().flatten(0, -2)
        ctx.save_for_backward(rows)
        out = torch.empty_like(rows)
        ctx.norm.forward(rows, out=out)
        return out.view(x.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x,), d_out = ctx.saved_tensors, gradients[0].contiguous()
        d_rows, dx = d_out.flatten(0, -2), torch.empty_like(d_out)
        ctx.norm.backward(x, d_rows, out=dx.view(x.shape))
        return dx, scale_gradient(x, d_rows, ctx.widths), column_sums(d_rows), None


class Product:
    """x W', normalised in parts with layer norm, plus the bias, if any; one time step per call.

    The tensors of all steps have time as their first axis: with layer norm the products and their gradients [T, B, m].
    """

    def __init__(self, projection: Projection, sizes: Sizes, take: Callable[[int, int, int], Tensor]) -> None:
        """`take` returns memory [T, B, m] for the products, which only layer norm needs."""
        weight, bias, self._scale, self._offset, widths = projection
        self.outputs, self.inputs = weight.shape
        self._matrix = matrix_of(weight, sizes.dtype)
        self._saved = None if self._scale is None else take(sizes.length, sizes.batch, self.outputs)
        self._written: Tensor | None = None
        self._widths, self._norm = list(widths) or [self.outputs], None
        if self._scale is not None and self._offset is not None and use_native(weight):
            self._norm = RowNorm(self._scale, self._offset if bias is None else self._offset + bias, self._widths)
        self.dtype = torch.float32 if self._scale is not None and self._norm is None else sizes.dtype
        """The type of the output."""
        self._bias = None if bias is None else bias.detach().to(self.dtype)

    @property
    def deferrable(self) -> bool:
        """Whether all its work consists of C kernels for bf16, see `nmt.ops.native.in_one_team`."""
        return self._matrix.packed and (self._saved is None or self._norm is not None)

    def forward(self, t: int, x: Tensor, *, out: Tensor) -> None:
        """Write the result for x [B, n] at time step t to out [B, m]."""
        place = self.place(t, out=out)
        self._matrix.forward(x, out=place, bias=self._bias if place is out else None)
        self.finish(t, out=out)

    def place(self, t: int, *, out: Tensor) -> Tensor:
        """The place where `finish` reads the product [B, m] of time step t; without layer norm it is `out`, and the
        product includes the bias."""
        return out if self._saved is None else self._saved[t]

    def finish(self, t: int, *, out: Tensor) -> None:
        """With layer norm, write the normalised product plus bias to out [B, m]."""
        if self._saved is not None and self._norm is not None:
            self._norm.forward(self._saved[t], out=out)
        elif self._saved is not None and self._scale is not None and self._offset is not None:
            normal = layer_norm(self._saved[t], self._scale, self._offset, widths=self._widths)
            out.copy_(normal if self._bias is None else normal + self._bias)

    def start_backward(self) -> None:
        """Allocate the tensors that the backward pass writes."""
        self._written = None if self._saved is None else torch.empty_like(self._saved)

    def product_gradient(self, t: int, d_out: Tensor) -> Tensor:
        """The gradient of the product alone, from the output gradient of time step t; with layer norm it is kept."""
        if self._saved is None or self._written is None or self._scale is None or self._offset is None:
            return d_out
        if self._norm is not None:
            self._norm.backward(self._saved[t], d_out, out=self._written[t])
            return self._written[t]
        parts = (self._written[t], self._saved[t].float(), d_out.float(), self._scale.float(), self._offset.float())
        for result, product, gradient, scale, offset in zip(*(x.split(self._widths, -1) for x in parts), strict=True):
            shape, product = list(scale.shape), product.contiguous()
            _, mean, deviation = torch.native_layer_norm(product, shape, scale, offset, EPSILON)
            d_product, _, _ = torch.ops.aten.native_layer_norm_backward(
                gradient.contiguous(), product, shape, mean, deviation, scale, offset, [True, False, False]
            )
            result.copy_(d_product)
        return self._written[t]

    def backward(self, d_product: Tensor, *, out: Tensor, added: Tensor | None = None) -> None:
        """Write the gradient of x [B, n], from the gradient of the product alone, plus `added`."""
        self._matrix.backward(d_product, out=out, added=added)

    def product_gradients(self, d_out: Tensor) -> Tensor:
        """The gradients [T, B, m] of the products of all time steps, after the last `product_gradient`."""
        return d_out if self._written is None else self._written

    def weight_gradients(self, x: Tensor, d_out: Tensor) -> list[Tensor | None]:
        """The gradients of matrix, bias, scale and offset, from x [T, B, n] and d_out [T, B, m] of all steps."""
        d_product = self.product_gradients(d_out)
        d_weight = self._matrix.weight_gradient(d_product.flatten(0, 1), x.flatten(0, 1))
        if self._saved is None:
            return [d_weight, None if self._bias is None else row_sums(d_out), None, None]
        d_offset, d_scale = row_sums(d_out), scale_gradient(self._saved, d_out, self._widths)
        return [d_weight, None if self._bias is None else d_offset.clone(), d_scale, d_offset]


def row_sums(x: Tensor) -> Tensor:
    """x [T, B, W] summed over its rows, [W] fp32."""
    return column_sums(x.flatten(0, 1)) if use_native(x) else x.sum((0, 1), dtype=torch.float32)


def scale_gradient(product: Tensor, d_normal: Tensor, widths: Sequence[int]) -> Tensor:
    """The gradient [W] of the layer-norm scales over parts of products [..., W], from the gradient of the results."""
    if use_native(product) and product.dtype == d_normal.dtype:
        rows, d_rows = product.flatten(0, -2), d_normal.flatten(0, -2).contiguous()
        slopes = torch.empty(rows.shape)
        kernel("norm_slopes", rows.dtype)(rows, torch.tensor(list(widths)), len(widths), d_rows, slopes, *rows.shape)
        return column_sums(slopes)
    parts = [F.layer_norm(part, part.shape[-1:], eps=EPSILON) for part in product.float().split(list(widths), -1)]
    return (torch.cat(parts, -1) * d_normal).sum((0, 1))


MOVED_MEANWHILE: Final = 8 * 2**20
"""Bytes that a large GPU reads in about 2 us, the time of one more small product in a chain of products."""


def multiplied(values: Tensor, context: Projection) -> Tensor | None:
    """The memory times the input matrix of the higher cell, before the loop, so that the loop has no such product.

    Attention then sums rows of m W' + b instead of rows of m: since its weights add up to one, the sum is the input of
    the cell. Contexts, and the gradients that depend on them, are computed after the loop as products over all time
    steps. This is possible only if attention has one head and nothing, such as dropout, is between a context and the
    matrix. Letters as in `nmt.ops.loop`; N is the width k'H of the input of the higher cell.

    [B, 1, S, N] from values [B, 1, S, M] and the product, with its bias unless layer norm comes before the bias.

    None unless this saves time: the additional bytes that attention reads in each step must not exceed the bytes of
    the matrix plus those that a GPU could read during the product. By reasoning; not yet measured on a GPU.
    """
    sentences, heads, source, width = values.shape
    more = sentences * source * (len(context.weight) - width) * values.element_size()
    if heads > 1 or more > context.weight.numel() * values.element_size() + MOVED_MEANWHILE:
        return None
    bias = None if context.bias is None or context.scale is not None else context.bias.to(values.dtype)
    return F.linear(values, context.weight.to(values.dtype), bias)
