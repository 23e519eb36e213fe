"""A weight matrix in bf16 whose products come out in fp32."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.narrow.matrix import NarrowMatrix, padded
from nmt.ops.narrow.native import Rows, packs


class Bf16Matrix(NarrowMatrix):
    """A matrix [M, K] as bf16 values; made by `to_bf16`."""

    def operand(self, x: Tensor) -> Rows:
        x = x.to(torch.bfloat16)
        more = self.values.shape[1] - x.shape[1]
        return Rows(F.pad(x, (0, more)) if more else x.contiguous())

    def plain_product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(torch.bfloat16).float()
            return F.linear(x, self.dequantize().float(), None if bias is None else bias.detach().float())

    def chosen(self, index: Tensor) -> Bf16Matrix:
        return to_bf16(self.values.index_select(0, index)[:, : self.shape[1]])

    def dequantize(self) -> Tensor:
        rows, width = self.shape
        return self.values[:rows, :width]


def to_bf16(weight: Tensor) -> Bf16Matrix:
    """The nearest bf16 values of a weight [M, K]."""
    rows, width = weight.shape
    values = padded(weight.detach().to(torch.bfloat16), 2)
    return NarrowMatrix.make(Bf16Matrix, values, None, rows=rows, width=width)


def worth_packing(device: torch.device) -> bool:
    """Whether this device is a CPU with a kernel for packed bf16 matrices."""
    return device.type == "cpu" and packs(torch.bfloat16)
