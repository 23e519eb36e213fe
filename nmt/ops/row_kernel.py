"""Common parts of the Triton kernels of units with recurrent matrices: a program has a row with all channels.

So it can normalise the row. Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Final, Generic, TypeVar

import torch
import triton
from torch import Tensor

from nmt.ops.dispatch import TRITON_DTYPES
from nmt.ops.unit import Kernel, Unit

U = TypeVar("U", bound=Unit)

MOST_CHANNELS: Final = 2048
"""Most channels that a program can keep in registers; wider units use the reference."""


class RowKernel(Kernel, Generic[U]):
    """A unit whose steps are Triton kernels between products."""

    unit: U
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
