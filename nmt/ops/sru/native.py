"""SRU with its C kernel."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.native import kernel
from nmt.ops.native.sequence import native_sequence
from nmt.ops.native.unit import Kernel, States, mask_arguments, output_arguments
from nmt.ops.unit import Unit


def sru_native(
    projected: Tensor,
    peephole_forget: Tensor,
    peephole_reset: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `nmt.ops.sru.sru_sequence`."""
    unit = Unit("sru", (peephole_forget, peephole_reset))
    outputs, h, c = native_sequence(unit, projected, (h, c), mask, reverse=reverse)
    return outputs, h, c


class SRUKernel(Kernel):
    """SRU; weights v_f [H] and v_r [H]; state h, c; no options."""

    parts: ClassVar[int] = 2
    products: ClassVar[int] = 4

    def __init__(self, unit: Unit, *, length: int, batch: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__(unit, length=length, batch=batch, hidden=hidden, dtype=dtype)
        self._peepholes = [weight.detach().float().contiguous() for weight in unit.weights]
        self._gradients: Tensor | None = None  # [B, 2H], of both peepholes in each row

    def forward(
        self, x: Tensor, before: States, after: States, mask: Tensor | None, *, start: int, reverse: bool
    ) -> None:
        run = kernel("sru_forward", self.dtype)
        run(
            *(x, *x.stride()[:2], *self._peepholes, *mask_arguments(mask)),
            *(*before.parts, *after.parts, after.narrow, *after.strides),
            *(self.batch, x.size(1), self.hidden, reverse),
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
        if self._gradients is None:
            self._gradients = torch.zeros(self.batch, 2 * self.hidden)
        run = kernel("sru_backward", self.dtype)
        run(
            *(x, *x.stride()[:2], *self._peepholes, *mask_arguments(mask)),
            *(before.parts[1], after.parts[1], *after.strides, *output_arguments(outputs)),
            *(*gradient, dx, *dx.stride()[:2], self._gradients, self.batch, x.size(1), self.hidden, reverse),
        )

    def weight_gradients(self, before: Tensor) -> tuple[Tensor, ...]:
        if self._gradients is None:  # no time step
            return tuple(torch.zeros_like(weight) for weight in self._peepholes)
        rows, self._gradients = self._gradients, None
        total = torch.empty(rows.size(1))
        kernel("sum_columns", torch.float32)(rows, total, *rows.shape)
        return total.chunk(2)
