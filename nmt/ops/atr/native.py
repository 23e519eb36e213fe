"""ATR with its C kernel."""

from __future__ import annotations

from typing import ClassVar, Final

import torch
from torch import Tensor

from nmt.ops.atr.reference import Activation, Gates, atr_reference
from nmt.ops.native import kernel
from nmt.ops.native.product import ProductKernel
from nmt.ops.native.sequence import native_sequence
from nmt.ops.native.unit import States, mask_arguments, output_arguments
from nmt.ops.recurrence import Recurrent
from nmt.ops.unit import Unit

_ACTIVATIONS: Final = {"none": 0, "output": 0, "state": 1, "candidate": 2}
_GATES: Final = {"twin": 0, "coupled": 1, "coupled_input": 2}
"""Both as native.c numbers them."""


def atr_native(
    projected: Tensor,
    recurrent: Recurrent,
    h: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool,
    activation: Activation,
    gates: Gates,
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.atr.atr_sequence`. Layer norm is left to the reference."""
    if recurrent.scale is not None:
        return atr_reference(projected, recurrent, h, mask, reverse=reverse, activation=activation, gates=gates)
    unit = Unit("atr", (recurrent.weight, recurrent.bias), {"activation": activation, "gates": gates})
    outputs, last = native_sequence(unit, projected, (h,), mask, reverse=reverse)
    return torch.tanh(outputs) if activation == "output" else outputs, last


class ATRKernel(ProductKernel):
    """ATR; weights U [H, H] and b [H]; options `activation` (the tanh of `output` is the caller's) and `gates`."""

    products: ClassVar[int] = 1

    def __init__(self, unit: Unit, *, length: int, batch: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__(unit, length=length, batch=batch, hidden=hidden, dtype=dtype)
        self._options = _ACTIVATIONS[unit.options["activation"]], _GATES[unit.options["gates"]]

    def forward(
        self, x: Tensor, before: States, after: States, mask: Tensor | None, *, start: int, reverse: bool
    ) -> None:
        (products,) = self.kept
        self._product.forward(before.narrow[0], out=products[start])
        run = kernel("atr_forward", self.dtype)
        run(
            *(x, x.stride(0), products[start], self._product.bias, *mask_arguments(mask)[:2]),
            *(before.parts[0], after.parts[0], after.narrow, after.strides[0]),
            *(self.batch, self.hidden, *self._options),
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
        run = kernel("atr_backward", self.dtype)
        run(
            *(x, x.stride(0), products[start], self._product.bias, *mask_arguments(mask)[:2]),
            *(before.parts[0], after.parts[0], after.strides[0], *output_arguments(outputs)[:2]),
            *(gradient, dx, dx.stride(0), self._product.gradients[start]),
            *(self.batch, self.hidden, *self._options),
        )
        self._product.add_backward(start, to=gradient[0])
