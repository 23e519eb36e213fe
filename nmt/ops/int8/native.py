"""Products of rows with an int8 matrix by C kernels: all of it where the CPU suits, else what is around torch's."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.int8.product import int8_product
from nmt.ops.native import has, kernel

STRIP: Final = 32
"""Outputs side by side in a packed matrix."""
SMALLEST_SCALE: Final = 1e-30
"""For rows of zeros."""
ROWS: Final = 12
"""Rows that the kernel multiplies at a time."""


class Rows(NamedTuple):
    """N rows in int8."""

    values: Tensor
    """int8 [N, K'], filled up with zeros"""
    scales: Tensor
    """fp32 [N]"""
    excess: Tensor
    """int32 [N], 128 times the sum of a row; see native.c"""


def quantized(x: Tensor, width: int) -> Rows:
    """x [N, K] in fp32 or bf16 as int8 rows of `width` K'."""
    x = x.detach()
    x = x if x.stride(1) == 1 else x.contiguous()
    rows = len(x)
    values = torch.empty(rows, width, dtype=torch.int8)
    scales, excess = torch.empty(rows, dtype=torch.float32), torch.empty(rows, dtype=torch.int32)
    run = kernel("int8_rows", "pi pi pp ii f", x.dtype)
    run(x, x.stride(0), values, width, scales, excess, rows, x.shape[1], SMALLEST_SCALE)
    return Rows(values, scales, excess)


def linear_native(x: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """See `nmt.ops.int8.matrix.int8_linear`: x [N, K] fp32 or bf16, values [M', K'], scales [M]; fp32 [N, M]."""
    rows, outputs = quantized(x, values.shape[1]), len(scales)
    result = torch.empty(len(x), outputs, dtype=torch.float32)
    run = kernel("int8_scale", "pi ppp p ii", result.dtype)
    sums = int8_product(rows.values, values)
    run(sums, sums.stride(0), rows.scales, scales.contiguous(), _plain(bias), result, len(x), outputs)
    return result


def packs() -> bool:
    """Whether this CPU has a kernel for packed matrices."""
    return has("int8_product")


def pack(values: Tensor) -> Tensor:
    """int8 values [M', K'] as the kernel reads them: uint8 [M' / STRIP, K' / 4, STRIP, 4], see native.c."""
    values = F.pad(values, (0, 0, 0, -len(values) % STRIP))
    strips = (values.to(torch.int16) + 128).to(torch.uint8).view(-1, STRIP, values.shape[1] // 4, 4)
    return strips.transpose(1, 2).contiguous()


def packed_native(x: Tensor, packed: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """As `linear_native`, with a matrix that is `pack`ed."""
    rows, outputs = quantized(x, _width(packed)), len(scales)
    result = torch.empty(len(x), outputs, dtype=torch.float32)
    run = kernel("int8_product", "pppp ppp i iii", result.dtype)
    matrix = packed, scales.contiguous(), _plain(bias)
    run(rows.values, rows.excess, rows.scales, *matrix, result, outputs, len(x), _width(packed), outputs)
    return result


def _width(packed: Tensor) -> int:
    return packed.shape[1] * 4


def _plain(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.detach().float().contiguous()
