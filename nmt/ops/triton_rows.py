"""Common parts of the Triton kernels of units with recurrent matrices: a program has a row of the batch with all its
channels, so that it can normalise the row.

Several rows of H channels, such as those of several gates, are tuples. Rows where the mask is 0 keep their state. All
loads of a kernel come first: sums over a row are barriers, and loads after a barrier would add their latency again.
Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.ops.dispatch import TRITON_DTYPES
from nmt.ops.triton_tools import inverse_deviation, load_row, store_row
from nmt.ops.unit import Kernel, Unit

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, assignment, misc"
# ruff: noqa: N803, N806 - inside kernels constants are in capitals, and sizes as in their shapes

MOST_CHANNELS: Final = 2048
"""Most channels that a program can keep in registers; wider units use the reference."""


class RowKernel(Kernel):
    """A unit whose steps are Triton kernels between products."""

    recorded: ClassVar[bool] = True

    @classmethod
    def problem(cls, unit: Unit, *, dtype: torch.dtype, hidden: int) -> str | None:
        if dtype not in TRITON_DTYPES:
            return f"there is no kernel for weights of {str(dtype).removeprefix('torch.')}"
        return f"a hidden size of {hidden} is more than {MOST_CHANNELS}" if hidden > MOST_CHANNELS else None

    @functools.cached_property
    def launch(self) -> dict[str, Any]:
        """The launch options of its kernels."""
        return row_launch(self.sizes.hidden) | {"NORMALIZED": self.unit.normalized}

    def through(self, matrix: int, d_product: Tensor) -> Tensor:
        """The gradient of the operand of a product, [B, H]."""
        gradient = d_product.new_empty(self.sizes.batch, self.sizes.hidden)
        self.matrices[matrix].backward(d_product, out=gradient)
        return gradient


def row_launch(hidden: int) -> dict[str, Any]:
    """The launch options of kernels whose programs have a row of `hidden` channels."""
    block = triton.next_power_of_2(hidden)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 128))}


@triton.jit
def load_rows(p, o, H, N: tl.constexpr):
    """A tuple of N rows that are consecutive in memory."""
    rows = ()
    for i in tl.static_range(N):
        rows = rows + (load_row(p + i * H, o, H),)
    return rows


@triton.jit
def store_rows(p, rows, o, H):
    for i in tl.static_range(len(rows)):
        store_row(p + i * H, rows[i], o, H)


@triton.jit
def load_live(p_mask, i_b, sm_b, MASKED: tl.constexpr):
    """Whether row i_b is real; without a mask all are."""
    return tl.load(p_mask + i_b * sm_b) != 0 if MASKED else True


@triton.jit
def load_gradient(p, p_pending, p_dout, i_b, so_b, o, H, PENDING: tl.constexpr, ADDED: tl.constexpr):
    """The gradient of a state in row i_b: the sum of the carried gradient, a pending product and the output's."""
    d = load_row(p + i_b * H, o, H)
    if PENDING:
        d += load_row(p_pending + i_b * H, o, H)
    if ADDED:
        d += load_row(p_dout + i_b * so_b, o, H)
    return d


@triton.jit
def load_product(p_u, p_bias, p_x, p_scale, p_offset, o, H, N: tl.constexpr, NORMALIZED: tl.constexpr):
    """The arguments of `sums`: N rows each of a product, of its addends (the bias and x, if any), and of layer norm's
    scale and offset."""
    added = ()
    for i in tl.static_range(N):
        row = load_row(p_bias + i * H, o, H)
        if p_x is not None:
            row += load_row(p_x + i * H, o, H)
        added = added + (row,)
    scale = ()
    offset = ()
    if NORMALIZED:
        scale = load_rows(p_scale, o, H, N)
        offset = load_rows(p_offset, o, H, N)
    return load_rows(p_u, o, H, N), added, scale, offset


@triton.jit
def sums(product, o, H, NORMALIZED: tl.constexpr):
    """The rows of a product, normalised together, plus the addends; then the normalised rows and their factor."""
    u, added, scale, offset = product
    N: tl.constexpr = len(u)
    factor = 1.0
    if NORMALIZED:
        total = tl.zeros_like(u[0])
        for i in tl.static_range(N):
            total += u[i]
        mean = tl.sum(total, 0) / (N * H)
        squares = tl.zeros_like(total)
        centred = ()
        for i in tl.static_range(N):
            centred = centred + (tl.where(o < H, u[i] - mean, 0.0),)
            squares += centred[i] * centred[i]
        factor = inverse_deviation(tl.sum(squares, 0), N * H)
        u = ()
        for i in tl.static_range(N):
            u = u + (centred[i] * factor,)
    result = ()
    for i in tl.static_range(N):
        result = result + (added[i] + (u[i] * scale[i] + offset[i] if NORMALIZED else u[i]),)
    return result, u, factor


@triton.jit
def through_norm(d, normal, scale, factor, H, NORMALIZED: tl.constexpr):
    """The gradients of the product, from the gradients of the rows of `sums` and its other results."""
    result = d
    if NORMALIZED:
        N: tl.constexpr = len(d)
        scaled = ()
        total = tl.zeros_like(d[0])
        slopes = tl.zeros_like(d[0])
        for i in tl.static_range(N):
            scaled = scaled + (d[i] * scale[i],)
            total += scaled[i]
            slopes += scaled[i] * normal[i]
        mean = tl.sum(total, 0) / (N * H)
        slope = tl.sum(slopes, 0) / (N * H)
        result = ()
        for i in tl.static_range(N):
            result = result + (factor * (scaled[i] - mean - normal[i] * slope),)
    return result
