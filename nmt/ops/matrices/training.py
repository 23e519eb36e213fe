"""The product with a weight matrix and its gradients: packed for the C kernels, or by torch."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.dispatch import use_native
from nmt.ops.native import column_sums, has, kernel
from nmt.ops.recurrence import at_least_fp32, product_type, readable_rows

STRIP: Final = 32
"""Outputs side by side in a packed matrix, see tiles.h."""
FEW_ROWS: Final = range(8, 41)
"""Rows of a product in fp32 for which a packed matrix is faster than torch, if it serves many products."""
FEW_STEPS: Final = 16
"""Number of products from which on packing a matrix in fp32 saves time."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [..., K] times the transposed weight [M, K], plus bias [M], in the type of autocast.

    The same as `torch.nn.functional.linear`. `PackedMatrix` computes it if a gradient is needed and the types fit; the
    gradients of weight and bias are then sums in fp32.
    """
    dtype = product_type(x)
    wants_sums = dtype == torch.bfloat16 and torch.is_grad_enabled() and weight.requires_grad and x.numel()
    if wants_sums and packable(weight, dtype):
        result: Tensor = _Linear.apply(x, weight, bias)
        return result
    return F.linear(x, weight, bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = readable_rows(x.reshape(-1, x.size(-1)).to(torch.bfloat16))
        result = torch.empty(*x.shape[:-1], len(weight), dtype=torch.bfloat16)
        PackedMatrix(weight).forward(rows, out=result.view(len(rows), -1), bias=bias)
        ctx.save_for_backward(rows, weight)
        ctx.shape, ctx.dtype = x.shape, x.dtype
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        d_rows = readable_rows(gradients[0].reshape(len(x), -1))
        matrix, dx, d_weight, d_bias = PackedMatrix(weight), None, None, None
        if ctx.needs_input_grad[0]:
            dx = torch.empty(ctx.shape, dtype=ctx.dtype)
            matrix.backward(d_rows, out=dx.view(len(x), -1))
        if ctx.needs_input_grad[1]:
            d_weight = matrix.weight_gradient(d_rows, x)
        if ctx.needs_input_grad[2]:
            d_bias = column_sums(d_rows)
        return dx, d_weight, d_bias


def packable(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether the C kernels multiply with `weight` [M, K] in products of `dtype`."""
    even = weight.size(0) % 2 == weight.size(1) % 2 == 0  # values are summed two at a time
    return dtype == torch.bfloat16 and even and use_native(weight) and has("bf16_product", dtype)


def matrix_of(weight: Tensor, dtype: torch.dtype) -> PlainMatrix:
    """The products with `weight` [M, K] in `dtype`; packing saves time from some dozen rows on."""
    weight = weight.detach()
    return PackedMatrix(weight) if packable(weight, dtype) else PlainMatrix(weight.to(dtype))


def matrix_of_steps(weight: Tensor, dtype: torch.dtype, *, steps: int, rows: int) -> PlainMatrix:
    """The products with `weight` [M, K] in `dtype` for `steps` time steps of `rows` rows each.

    torch packs an fp32 matrix again in every product. With few rows this takes about as long as the product itself, so
    the matrix is packed once for all steps. For a single step, packing would take longer than the step.
    """
    weight = weight.detach()
    if steps == 1:
        return PlainMatrix(weight.to(dtype))
    few = steps >= FEW_STEPS and rows in FEW_ROWS and weight.dtype == dtype == torch.float32
    if few and use_native(weight) and has("fp32_product", dtype):
        return PackedWideMatrix(weight)
    return matrix_of(weight, dtype)


class PlainMatrix:
    """Products of rows with a matrix W [M, K] by torch, in its type; rows can have any stride, values in a row cannot.

    They are written with `out=`, which autocast does not change.
    """

    packed: ClassVar[bool] = False
    """Whether its products use C kernels that can run in one team, see `nmt.ops.native.in_one_team`."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def forward(self, x: Tensor, *, out: Tensor, bias: Tensor | None = None) -> None:
        """out [N, M] = x [N, K] W' + bias [M]"""
        if bias is None:
            torch.mm(x, self.weight.t(), out=out)
        else:
            torch.addmm(bias.to(out.dtype), x, self.weight.t(), out=out)

    def backward(self, d_out: Tensor, *, out: Tensor, added: Tensor | None = None) -> None:
        """out [N, K] = d_out [N, M] W + added [N, K], of the type of `out`"""
        if added is None:
            torch.mm(d_out, self.weight, out=out)
        else:
            torch.addmm(added, d_out, self.weight, out=out)

    def weight_gradient(self, d_out: Tensor, x: Tensor, *, to: Tensor | None = None) -> Tensor:
        """d_out' x [M, K] in at least fp32; if `to` is given, added to it in place."""
        if to is not None and to.dtype == x.dtype:
            return torch.addmm(to, d_out.t(), x, out=to)
        gradient = torch.empty_like(self.weight)
        torch.mm(d_out.t(), x, out=gradient)
        return at_least_fp32(gradient) if to is None else to.add_(gradient)


class PackedMatrix(PlainMatrix):
    """The same by the C kernels, in bf16; `out` is bf16 or fp32, the gradient of the weight fp32."""

    packed: ClassVar[bool] = True

    def __init__(self, weight: Tensor) -> None:
        super().__init__(readable_rows(weight))

    @functools.cached_property
    def _packed(self) -> Tensor:
        return pack(self.weight)

    @functools.cached_property
    def _transposed(self) -> Tensor:
        return _pack_transposed(self.weight)

    def forward(self, x: Tensor, *, out: Tensor, bias: Tensor | None = None) -> None:
        _product(x, self._packed, added=None if bias is None else bias.detach().to(out.dtype), step=0, out=out)

    def backward(self, d_out: Tensor, *, out: Tensor, added: Tensor | None = None) -> None:
        _product(d_out, self._transposed, added=added, step=0 if added is None else added.stride(0), out=out)

    def weight_gradient(self, d_out: Tensor, x: Tensor, *, to: Tensor | None = None) -> Tensor:
        add, to = to is not None, torch.empty(self.weight.shape, dtype=torch.float32) if to is None else to
        run = kernel("bf16_gradient", d_out.dtype)
        run(d_out, d_out.stride(0), _pack_transposed(x), to, *d_out.shape, x.size(1), add)
        return to


class PackedWideMatrix(PackedMatrix):
    """The same in fp32; the gradient of the weight is a single product, by torch."""

    packed: ClassVar[bool] = False

    @functools.cached_property
    def _packed(self) -> Tensor:
        return self._strips("pack_fp32", *self.weight.shape)

    @functools.cached_property
    def _transposed(self) -> Tensor:
        return self._strips("pack_transposed_fp32", *self.weight.t().shape)

    def _strips(self, name: str, outputs: int, width: int) -> Tensor:
        packed = torch.empty(-(-outputs // STRIP) * width * STRIP)
        kernel(name, torch.float32)(self.weight, self.weight.stride(0), packed, *self.weight.shape)
        return packed

    def weight_gradient(self, d_out: Tensor, x: Tensor, *, to: Tensor | None = None) -> Tensor:
        return PlainMatrix.weight_gradient(self, d_out, x, to=to)


def pack(weight: Tensor) -> Tensor:
    """A matrix [M, K] in strips of bf16, for products with rows [N, K]; K is even."""
    outputs, width = weight.shape
    packed = torch.empty(-(-outputs // STRIP) * width * STRIP, dtype=torch.bfloat16)
    kernel("pack", weight.dtype)(weight, weight.stride(0), packed, outputs, width)
    return packed


def _pack_transposed(x: Tensor) -> Tensor:
    """The transpose of x [N, K] in strips."""
    rows, width = x.shape
    packed = torch.empty((rows + rows % 2) * -(-width // STRIP) * STRIP, dtype=torch.bfloat16)
    kernel("pack_transposed", x.dtype)(x, x.stride(0), packed, rows, width)
    return packed


def _product(x: Tensor, packed: Tensor, *, added: Tensor | None, step: int, out: Tensor) -> None:
    """out = x times a matrix in strips, in the type of these, plus `added`, whose rows have the stride `step`."""
    wide = packed.dtype == torch.float32
    run = kernel("fp32_product" if wide else "bf16_product", packed.dtype)
    form = () if wide else (out.dtype == torch.float32,)
    run(x, x.stride(0), packed, added, step, out, out.stride(0), *form, *x.shape, out.size(1))
