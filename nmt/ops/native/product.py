"""The product of a state with a recurrent matrix at each time step, and its gradients."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.matrices.inference import InferenceMatrix
from nmt.ops.matrices.training import PlainMatrix, matrix_of
from nmt.ops.native import column_sums, kernel
from nmt.ops.native.unit import Kernel
from nmt.ops.unit import Unit


class Product:
    """inputs_t W' for the weight W [jH, H], one time step after the other; the bias [jH] is left to the kernels.

    Everything is in the type of the sequences but the bias and the gradients of the parameters, which are fp32.
    """

    def __init__(self, weight: Tensor, bias: Tensor, *, length: int, batch: int, dtype: torch.dtype) -> None:
        self._weight: PlainMatrix | InferenceMatrix
        if isinstance(weight, InferenceMatrix):
            self._weight = weight
        elif length > 1:
            self._weight = matrix_of(weight, dtype)
        else:  # a step of a search, for which packing would take longer than the product
            self._weight = PlainMatrix(weight.detach().to(dtype))
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
        if isinstance(self._weight, InferenceMatrix):
            out.copy_(F.linear(inputs, self._weight))
        else:
            self._weight.forward(inputs, out=out)

    @property
    def packed(self) -> bool:
        """Whether the products are C kernels."""
        return not isinstance(self._weight, InferenceMatrix) and self._weight.packed

    @property
    def _matrix(self) -> PlainMatrix:
        """The weight, which has gradients and so is not one for inference."""
        return cast("PlainMatrix", self._weight)

    def backward(self, t: int, *, out: Tensor) -> None:
        """The gradient of the inputs of time step t, from that of their products."""
        self._matrix.backward(self.gradients[t], out=out)

    def add_backward(self, t: int, *, to: Tensor) -> None:
        """The same, added to `to` [B, H] fp32."""
        if self.packed or self._dtype == torch.float32:
            self._matrix.backward(self.gradients[t], out=to, added=to)
            return
        gradient = torch.empty(to.shape, dtype=self._dtype)
        self.backward(t, out=gradient)
        kernel("add_rows", gradient.dtype)(gradient, gradient.stride(0), to, *to.shape)

    def weight_gradients(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of weight and bias (fp32), from the inputs of all time steps [T, B, H]."""
        rows = self.gradients.flatten(0, 1)  # [T * B, jH]
        self._gradients = None
        return self._matrix.weight_gradient(rows, inputs.flatten(0, 1)), column_sums(rows)


class ProductKernel(Kernel):
    """A unit with one recurrent product a step, which its weights, matrix and bias, are for; see `Kernel`."""

    whole: ClassVar[bool] = False

    def __init__(self, unit: Unit, *, length: int, batch: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__(unit, length=length, batch=batch, hidden=hidden, dtype=dtype)
        self._product = Product(*unit.weights, length=length, batch=batch, dtype=dtype)
        self.kept = (self._product.empty(),)

    @property
    def kernels_alone(self) -> bool:
        return self._product.packed

    def weight_gradients(self, before: Tensor) -> tuple[Tensor, ...]:
        return self._product.weight_gradients(before)
