"""Common parts of the C kernels of units with recurrent matrices."""

from __future__ import annotations

from typing import Generic, TypeVar

import torch
from torch import Tensor

from nmt.ops.native import TYPES, kernel
from nmt.ops.product import recurrent_gradients
from nmt.ops.unit import Kernel, States, Unit

U = TypeVar("U", bound=Unit)


class CKernel(Kernel, Generic[U]):
    """A unit whose steps are C functions between products."""

    unit: U

    @classmethod
    def problem(cls, unit: Unit, *, dtype: torch.dtype, hidden: int) -> str | None:
        if unit.normalized:
            return "there is no C kernel with layer norm"
        return None if dtype in TYPES else f"there is no C kernel for {str(dtype).removeprefix('torch.')}"

    def add_backward(self, matrix: int, d_product: Tensor, *, to: Tensor) -> None:
        """Add the gradient of the state through one of the products [B, kH] to `to` [B, H] fp32."""
        product = self.matrices[matrix]
        if product.packed or d_product.dtype == torch.float32:
            product.backward(d_product, out=to, added=to)
            return
        gradient = torch.empty(to.shape, dtype=d_product.dtype)
        product.backward(d_product, out=gradient)
        kernel("add_rows", gradient.dtype)(gradient, gradient.stride(0), to, *to.shape)


class OneProductKernel(CKernel[U]):
    """A unit with one product per step, which it saves; the backward pass writes the product's gradient."""

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        (matrix,), (written,) = self.matrices, self.written
        return recurrent_gradients(matrix, operand=before.operand, d_product=written, d_sum=written)
