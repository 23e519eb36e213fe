"""A product with a matrix inside of a loop over time, with layer norm or without; its gradients.

Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.ops.layer_norm import EPSILON, layer_norm_parts
from nmt.ops.recurrence import Recurrent
from nmt.ops.steps import parameter_gradients


class Product:
    """x W' normalised in parts, if there is layer norm, plus bias, for one of T time steps of B rows at a call.

    Time comes first in all tensors that are kept: with layer norm the products and their gradients [T, B, m].
    """

    def __init__(self, weights: Sequence[Tensor], widths: Sequence[int], *, saved: Tensor | None) -> None:
        """`weights`: matrix [m, n] and bias [m] of one type, with layer norm scale and offset; `widths` of the parts,
        none for all together; `saved` is the room for the products."""
        self.parameters, self.saved = Recurrent(*weights), saved
        self.widths = list(widths) or [len(weights[0])]

    def forward(self, t: int, x: Tensor, *, out: Tensor) -> None:
        """Write what becomes of x [B, n], for time step t, into out [B, m]."""
        if self.saved is None:
            torch.addmm(self.parameters.bias, x, self.parameters.weight.t(), out=out)
        else:
            torch.mm(x, self.parameters.weight.t(), out=self.saved[t])
            self.finish(t, out=out)

    def product(self, t: int, *, out: Tensor) -> Tensor:
        """Where `finish` finds the product [B, m] of time step t: without layer norm with its bias, in `out`."""
        return out if self.saved is None else self.saved[t]

    def finish(self, t: int, *, out: Tensor) -> None:
        """Write what layer norm, if there is one, and bias make of a product into out [B, m]."""
        _, bias, scale, offset = self.parameters
        if self.saved is not None and scale is not None and offset is not None:
            out.copy_(layer_norm_parts(self.saved[t], scale, offset, widths=self.widths) + bias)

    def backward(self, t: int, d_out: Tensor, written: Tensor | None) -> Tensor:
        """The gradient of the product alone, from that of the output of time step t; with layer norm it is written."""
        _, _, scale, offset = self.parameters
        if self.saved is None or written is None or scale is None or offset is None:
            return d_out
        columns = [x.split(self.widths, -1) for x in (written[t], self.saved[t].float(), d_out.float(), scale, offset)]
        for result, product, gradient, one_scale, one_offset in zip(*columns, strict=True):
            shape, product = list(one_scale.shape), product.contiguous()
            _, mean, deviation = torch.native_layer_norm(product, shape, one_scale, one_offset, EPSILON)
            d_product, _, _ = torch.ops.aten.native_layer_norm_backward(
                gradient.contiguous(), product, shape, mean, deviation, one_scale, one_offset, [True, False, False]
            )
            result.copy_(d_product)
        return written[t]

    def weight_gradients(self, operand: Tensor, d_out: Tensor, written: Tensor | None) -> list[Tensor]:
        """The gradients of all weights, from x [T, B, n] and the gradients of the outputs [T, B, m] of all steps."""
        product, d_product = (d_out, d_out) if self.saved is None or written is None else (self.saved, written)
        return parameter_gradients(
            self.parameters, operand=operand, product=product, d_product=d_product, d_sum=d_out, widths=self.widths
        )
