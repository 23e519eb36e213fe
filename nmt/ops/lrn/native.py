"""LRN with its C kernel."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.native import column_sums, kernel
from nmt.ops.native.sequence import native_sequence
from nmt.ops.native.unit import Kernel, States, mask_arguments, output_arguments
from nmt.ops.unit import Unit


def lrn_native(
    projected: Tensor, h: Tensor | None, mask: Tensor | None, *, reverse: bool, tanh: bool
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.lrn.lrn_sequence`."""
    outputs, last = native_sequence(Unit("lrn", options={"tanh": tanh}), projected, (h,), mask, reverse=reverse)
    return outputs, last


class LRNKernel(Kernel):
    """LRN, oLRN and SRU by nmt/ops/native/scan.h."""

    products: ClassVar[int] = 3

    def __init__(self, unit: Unit, *, length: int, batch: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__(unit, length=length, batch=batch, hidden=hidden, dtype=dtype)
        weights = [weight.detach().float() for weight in unit.weights]
        self._vectors = torch.stack(weights) if weights else None
        self._gradients = torch.zeros(len(weights), batch, hidden)

    def forward(
        self, x: Tensor, before: States, after: States, mask: Tensor | None, *, start: int, reverse: bool
    ) -> None:
        run = kernel(f"{self.unit.name}_forward", self.dtype)
        run(
            *(x, *x.stride()[:2], self._vectors, *mask_arguments(mask)),
            *(before.parts, before.parts.stride(0), after.parts, after.parts.stride(0), *after.strides),
            *(after.narrow, *after.strides, self.batch, x.size(1), self.hidden, reverse),
            2 * self.unit.options.get("tanh", False),
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
        run = kernel(f"{self.unit.name}_backward", self.dtype)
        run(
            *(x, *x.stride()[:2], self._vectors, *mask_arguments(mask)),
            *(before.parts, before.parts.stride(0), after.parts, after.parts.stride(0), *after.strides),
            *output_arguments(outputs),
            *(gradient, dx, *dx.stride()[:2], self._gradients, self.batch, x.size(1), self.hidden, reverse),
            2 * self.unit.options.get("tanh", False),
        )

    def weight_gradients(self, before: Tensor) -> tuple[Tensor, ...]:
        rows, self._gradients = self._gradients, torch.zeros_like(self._gradients)
        return tuple(column_sums(part) for part in rows)
