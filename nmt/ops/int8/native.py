"""What surrounds the product of rows with an int8 matrix, by C kernels."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from nmt.ops.int8.product import int8_product
from nmt.ops.narrow.native import Rows
from nmt.ops.native import kernel

SMALLEST_SCALE: Final = 1e-30
"""For rows of zeros."""


def quantized(x: Tensor, width: int) -> Rows:
    """x [N, K] in fp32 or bf16 as int8 rows of `width` K'."""
    x = x if x.stride(1) == 1 else x.contiguous()
    rows = len(x)
    values = torch.empty(rows, width, dtype=torch.int8)
    scales, excess = torch.empty(rows, dtype=torch.float32), torch.empty(rows, dtype=torch.int32)
    run = kernel("int8_rows", x.dtype)
    run(x, x.stride(0), values, width, scales, excess, rows, x.shape[1], SMALLEST_SCALE)
    return Rows(values, scales, excess)


def linear_native(x: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """fp32 [N, M] of x [N, K] fp32 or bf16, values [M', K'], scales [M]; the integer product itself is torch's."""
    rows, outputs = quantized(x, values.shape[1]), len(scales)
    result = torch.empty(len(x), outputs, dtype=torch.float32)
    run = kernel("int8_scale", result.dtype)
    sums = int8_product(rows.values, values)
    bias = None if bias is None else bias.detach().float().contiguous()
    run(sums, sums.stride(0), rows.scales, scales.contiguous(), bias, result, len(x), outputs)
    return result
