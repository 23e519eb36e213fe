"""The product of rows with an int8 matrix, all but the integer product itself by C kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.int8.product import int8_product
from nmt.ops.native import kernel


def linear_native(x: Tensor, values: Tensor, scales: Tensor, bias: Tensor | None, *, least: float) -> Tensor:
    """See `nmt.ops.int8.matrix.int8_linear`: x [N, K] fp32 or bf16, values [M', K'], scales [M]; fp32 [N, M]."""
    x = x if x.stride(1) == 1 else x.contiguous()
    rows, padded, outputs = len(x), values.shape[1], len(scales)
    quantized = torch.empty(rows, padded, dtype=torch.int8)
    row_scales = torch.empty(rows, dtype=torch.float32)
    run = kernel("int8_rows", "pi pi p ii f", x.dtype)
    run(x, x.stride(0), quantized, padded, row_scales, rows, x.shape[1], least)
    result = torch.empty(rows, outputs, dtype=torch.float32)
    run = kernel("int8_scale", "pi ppp p ii", result.dtype)
    scales, bias = scales.contiguous(), None if bias is None else bias.detach().float().contiguous()
    sums = int8_product(quantized, values)
    run(sums, sums.stride(0), row_scales, scales, bias, result, rows, outputs)
    return result
