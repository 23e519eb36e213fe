"""A weight matrix that many rows are multiplied with, and its gradient: packed for the C kernels, or by torch."""

from __future__ import annotations

import functools
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from nmt.ops.dispatch import use_native
from nmt.ops.native import has, kernel
from nmt.ops.recurrence import at_least_fp32

STRIP = 32
"""Columns of a strip, see native.c."""


def packable(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether the C kernels multiply with `weight` [M, K] in products of `dtype`."""
    even = weight.size(0) % 2 == weight.size(1) % 2 == 0  # values are summed two at a time
    return dtype == torch.bfloat16 and even and use_native(weight) and has("linear_product", dtype)


class Matrix(Protocol):
    """Products of rows with a matrix W [M, K], in one type; rows may stand apart, values in a row may not."""

    packed: ClassVar[bool]
    """Whether its products are C kernels, see `nmt.ops.native.in_one_team`."""

    def forward(self, x: Tensor, *, out: Tensor, bias: Tensor | None = None) -> None:
        """out [N, M] = x [N, K] W' + bias [M]"""

    def backward(self, d_out: Tensor, *, out: Tensor, added: Tensor | None = None) -> None:
        """out [N, K] = d_out [N, M] W + added [N, K], of the type of `out`"""

    def weight_gradient(self, d_out: Tensor, x: Tensor, *, to: Tensor | None = None) -> Tensor:
        """d_out' x [M, K] in at least fp32, added to `to`, if given, in its place."""


def matrix_of(weight: Tensor, dtype: torch.dtype) -> Matrix:
    """The products with `weight` [M, K] in `dtype`; what is packed is worth it from some dozen rows on."""
    weight = weight.detach()
    return PackedMatrix(weight) if packable(weight, dtype) else PlainMatrix(weight.to(dtype))


class PlainMatrix:
    """By torch. Products are written with `out=`, which autocast leaves alone."""

    packed: ClassVar[bool] = False

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def forward(self, x: Tensor, *, out: Tensor, bias: Tensor | None = None) -> None:
        if bias is None:
            torch.mm(x, self.weight.t(), out=out)
        else:
            torch.addmm(bias.to(out.dtype), x, self.weight.t(), out=out)

    def backward(self, d_out: Tensor, *, out: Tensor, added: Tensor | None = None) -> None:
        if added is None:
            torch.mm(d_out, self.weight, out=out)
        else:
            torch.addmm(added, d_out, self.weight, out=out)

    def weight_gradient(self, d_out: Tensor, x: Tensor, *, to: Tensor | None = None) -> Tensor:
        if to is not None and to.dtype == x.dtype:
            return torch.addmm(to, d_out.t(), x, out=to)
        gradient = torch.empty_like(self.weight)
        torch.mm(d_out.t(), x, out=gradient)
        return at_least_fp32(gradient) if to is None else to.add_(gradient)


class PackedMatrix:
    """By the C kernels, in bf16; `out` is bf16 or fp32, the gradient of the weight fp32."""

    packed: ClassVar[bool] = True

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight if weight.stride(1) == 1 else weight.contiguous()

    @functools.cached_property
    def _transposed(self) -> Tensor:
        outputs, inputs = self.weight.shape
        packed = torch.empty(-(-outputs // STRIP) * inputs * STRIP, dtype=torch.bfloat16)
        run = kernel("linear_pack_transposed", self.weight.dtype)
        run(self.weight, self.weight.stride(0), packed, outputs, inputs)
        return packed

    @functools.cached_property
    def _straight(self) -> Tensor:
        return _pack(self.weight)

    def forward(self, x: Tensor, *, out: Tensor, bias: Tensor | None = None) -> None:
        _product(x, self._transposed, added=None if bias is None else bias.detach().to(out.dtype), step=0, out=out)

    def backward(self, d_out: Tensor, *, out: Tensor, added: Tensor | None = None) -> None:
        _product(d_out, self._straight, added=added, step=0 if added is None else added.stride(0), out=out)

    def weight_gradient(self, d_out: Tensor, x: Tensor, *, to: Tensor | None = None) -> Tensor:
        add, to = to is not None, torch.empty(self.weight.shape, dtype=torch.float32) if to is None else to
        run = kernel("linear_gradient", d_out.dtype)
        run(d_out, d_out.stride(0), _pack(x), to, *d_out.shape, x.size(1), add)
        return to


def _pack(x: Tensor) -> Tensor:
    """x [N, K] in strips."""
    rows, width = x.shape
    packed = torch.empty((rows + rows % 2) * -(-width // STRIP) * STRIP, dtype=torch.bfloat16)
    kernel("linear_pack", x.dtype)(x, x.stride(0), packed, rows, width)
    return packed


def _product(x: Tensor, packed: Tensor, *, added: Tensor | None, step: int, out: Tensor) -> None:
    run = kernel("linear_product", torch.bfloat16)
    run(x, x.stride(0), packed, added, step, out, out.stride(0), out.dtype == torch.float32, *x.shape, out.size(1))
