"""A weight matrix in int8 with a scale for each output, and its product with rows of activations."""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import use_native
from nmt.ops.int8.native import SMALLEST_SCALE, linear_native, quantized
from nmt.ops.int8.product import MULTIPLE, int8_product
from nmt.ops.narrow.matrix import NarrowMatrix, padded
from nmt.ops.narrow.native import Rows

LARGEST: Final = 127
"""Values are -127..127: symmetric."""
_BLOCK: Final = 1 << 19
"""Sums computed at a time on a CPU, 2 MiB: so they are still in the cache when they are scaled."""


class Int8Matrix(NarrowMatrix):
    """A matrix [M, K] as int8 values and fp32 scales [M]; made by `quantize`."""

    scales: Tensor

    def operand(self, x: Tensor) -> Rows:
        return quantized(x, self.values.shape[1])

    def plain_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        if use_native(x):
            return linear_native(x, self.values, self.scales, bias)
        more = self.values.shape[1] - x.shape[1]
        x, scales = quantize_rows(x)
        x = F.pad(x, (0, more)) if more else x
        outputs = len(self.scales)
        result = scales.new_empty(len(x), outputs)
        block = max(1, len(x) if x.is_cuda else _BLOCK // max(1, outputs))
        for start in range(0, len(x), block):
            sums = int8_product(x[start : start + block], self.values)[:, :outputs]
            torch.mul(sums, self.scales, out=result[start : start + block])
        return result.mul_(scales) if bias is None else torch.addcmul(bias.detach().float(), result, scales, out=result)

    def chosen(self, index: Tensor) -> Int8Matrix:
        return _matrix(self.values.index_select(0, index), self.scales.index_select(0, index), width=self.shape[1])

    def dequantize(self) -> Tensor:
        rows, width = self.shape
        return self.values[:rows, :width] * self.scales.unsqueeze(1)


def quantize(weight: Tensor) -> Int8Matrix:
    """The nearest int8 values of a weight [M, K], with a scale for each row."""
    values, scales = quantize_rows(weight)
    return _matrix(values, scales.squeeze(1), width=weight.shape[1])


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """int8 values [N, K] and fp32 scales [N, 1] of x [N, K]; each row depends on itself alone."""
    x = x.detach().float()
    scales = x.abs().amax(1, keepdim=True).div_(LARGEST).clamp_min_(SMALLEST_SCALE)
    return (x / scales).round_().to(torch.int8), scales


def _matrix(values: Tensor, scales: Tensor, *, width: int) -> Int8Matrix:
    return NarrowMatrix.make(Int8Matrix, padded(values, MULTIPLE), scales, rows=len(scales), width=width)
