"""LSTM with its C kernel."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from nmt.ops.lstm.reference import lstm_reference
from nmt.ops.native import kernel
from nmt.ops.native.product import ProductKernel
from nmt.ops.native.sequence import native_sequence
from nmt.ops.native.unit import States, mask_arguments, output_arguments
from nmt.ops.recurrence import Recurrent
from nmt.ops.unit import Unit


def lstm_native(
    projected: Tensor, recurrent: Recurrent, h: Tensor | None, c: Tensor | None, mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `nmt.ops.lstm.lstm_sequence`. Layer norm is left to the reference."""
    if recurrent.scale is not None:
        return lstm_reference(projected, recurrent, h, c, mask, reverse=reverse)
    unit = Unit("lstm", (recurrent.weight, recurrent.bias))
    outputs, h, c = native_sequence(unit, projected, (h, c), mask, reverse=reverse)
    return outputs, h, c


class LSTMKernel(ProductKernel):
    """LSTM; weights U [4H, H] and b [4H] (i, f, o, g); state h, c; no options."""

    parts: ClassVar[int] = 2
    products: ClassVar[int] = 4

    def forward(
        self, x: Tensor, before: States, after: States, mask: Tensor | None, *, start: int, reverse: bool
    ) -> None:
        (products,) = self.kept
        self._product.forward(before.narrow[0], out=products[start])
        run = kernel("lstm_forward", self.dtype)
        run(
            *(x, x.stride(0), products[start], self._product.bias, *mask_arguments(mask)[:2]),
            *(*before.parts, *after.parts, after.narrow, after.strides[0], self.batch, self.hidden),
        )

    def backward(
        self,
        x: Tensor,
        before: States,
        after: States,
        mask: Tensor | None,
        *,
        start: int,
        reverse: bool,
        gradient: Tensor,
        outputs: Tensor | None,
        dx: Tensor,
    ) -> None:
        (products,) = self.kept
        run = kernel("lstm_backward", self.dtype)
        run(
            *(x, x.stride(0), products[start], self._product.bias, *mask_arguments(mask)[:2]),
            *(before.parts[1], after.parts[1], after.strides[0], *output_arguments(outputs)[:2]),
            *(*gradient, dx, dx.stride(0), self._product.gradients[start], self.batch, self.hidden),
        )
        self._product.add_backward(start, to=gradient[0])
