"""The product of a state with a recurrent matrix at each time step, and its gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.native import kernel
from nmt.ops.packed import PackedMatrix


class Product:
    """inputs_t W' for the weight W [jH, H], one time step after the other; the bias [jH] is left to the kernels.

    Everything is in the type of the sequences but the bias, which is fp32. All products are written with `out=`,
    which autocast leaves alone.
    """

    def __init__(self, weight: Tensor, bias: Tensor, *, length: int, batch: int, dtype: torch.dtype) -> None:
        self.weight = weight if isinstance(weight, PackedMatrix) else weight.detach().to(dtype)
        self.bias = bias.detach().float().contiguous()
        self._shape, self._dtype = (length, batch, weight.size(0)), dtype
        self._gradients: Tensor | None = None

    def empty(self) -> Tensor:
        """Room for the products of all time steps [T, B, jH]."""
        return torch.empty(self._shape, dtype=self._dtype)

    @property
    def gradients(self) -> Tensor:
        """Those of the products of all time steps [T, B, jH], which the backward pass fills."""
        if self._gradients is None:
            self._gradients = self.empty()
        return self._gradients

    def forward(self, inputs: Tensor, *, out: Tensor) -> None:
        """Multiply inputs [B, H]."""
        if isinstance(self.weight, PackedMatrix):
            out.copy_(F.linear(inputs, self.weight))
        else:
            torch.mm(inputs, self.weight.t(), out=out)

    def backward(self, t: int, *, out: Tensor) -> None:
        """The gradient of the inputs of time step t, from that of their products."""
        torch.mm(self.gradients[t], self.weight, out=out)

    def add_backward(self, t: int, *, to: Tensor) -> None:
        """The same, added to `to` [B, H] fp32."""
        if self.weight.dtype == torch.float32:
            torch.addmm(to, self.gradients[t], self.weight, out=to)
            return
        gradient = torch.empty(to.shape, dtype=self.weight.dtype)
        self.backward(t, out=gradient)
        kernel("add_rows", "pi pii", gradient.dtype)(gradient, gradient.stride(0), to, *to.shape)

    def weight_gradients(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of weight and bias (fp32), from the inputs of all time steps [T, B, H]."""
        rows = self.gradients.flatten(0, 1)  # [T * B, jH]
        weight, bias = torch.empty_like(self.weight), torch.empty_like(self.bias)
        torch.mm(rows.t(), inputs.flatten(0, 1), out=weight)
        kernel("sum_columns", "pp ii", rows.dtype)(rows, bias, *rows.shape)
        self._gradients = None
        return weight, bias
