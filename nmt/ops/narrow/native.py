"""The C kernel for packed matrices: layout and calls; see native.c."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.native import has, kernel

STRIP: Final = 32
"""Outputs side by side in a packed matrix."""
ROWS: Final = 12
"""Rows that the kernel multiplies at a time."""
KINDS: Final = {torch.int8: "int8", torch.bfloat16: "bf16"}
"""What the names of the kernels begin with."""
_GROUP: Final = {torch.int8: 4, torch.bfloat16: 2}
"""Values of four bytes."""


class Rows(NamedTuple):
    """N rows in the format of a matrix."""

    values: Tensor
    """[N, K'], filled up with zeros"""
    scales: Tensor | None = None
    """fp32 [N], for int8"""
    excess: Tensor | None = None
    """int32 [N], 128 times the sum of a row, for int8"""


def packs(dtype: torch.dtype) -> bool:
    """Whether this CPU has a kernel for packed matrices of such values, int8 or bf16."""
    return has(f"{KINDS[dtype]}_product", torch.float32)


def pack(values: Tensor) -> Tensor:
    """Values [M', K'] as the kernel reads them, [M' / STRIP, K' / group, STRIP, group]; int8 become uint8."""
    group = _GROUP[values.dtype]
    values = F.pad(values, (0, 0, 0, -len(values) % STRIP))
    if values.dtype == torch.int8:
        values = (values.to(torch.int16) + 128).to(torch.uint8)
    return values.view(-1, STRIP, values.shape[1] // group, group).transpose(1, 2).contiguous()


def product_native(rows: Rows, packed: Tensor, scales: Tensor | None, bias: Tensor | None, *, outputs: int) -> Tensor:
    """The products [N, M] in fp32 of rows with a `pack`ed matrix of M `outputs`, times `scales` [M], plus bias [M]."""
    result = torch.empty(len(rows.values), outputs, dtype=torch.float32)
    run = kernel(f"{KINDS[rows.values.dtype]}_product", torch.float32)
    run(*arguments(rows, packed, scales, bias, outputs=outputs), result)
    return result


def arguments(
    rows: Rows, packed: Tensor, scales: Tensor | None, bias: Tensor | None, *, outputs: int
) -> tuple[Tensor | int | None, ...]:
    """What both kernels take first."""
    count, width = rows.values.shape
    scales = None if scales is None else scales.contiguous()
    bias = None if bias is None else bias.detach().float().contiguous()
    wide = width * rows.values.element_size()
    return rows.values, wide, rows.excess, rows.scales, packed, scales, bias, count, outputs
