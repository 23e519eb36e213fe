"""GRU with its C kernel."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.gru.reference import gru_reference
from nmt.ops.native import kernel
from nmt.ops.native.product import Product
from nmt.ops.native.sequence import native_sequence
from nmt.ops.native.unit import Kernel, States, mask_arguments, output_arguments
from nmt.ops.recurrence import Recurrent
from nmt.ops.unit import Unit


def gru_native(
    projected: Tensor, gates: Recurrent, candidate: Recurrent, h: Tensor | None, mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.gru.gru_sequence`. Layer norm is left to the reference."""
    if gates.scale is not None:
        return gru_reference(projected, gates, candidate, h, mask, reverse=reverse)
    unit = Unit("gru", (gates.weight, gates.bias, candidate.weight, candidate.bias))
    outputs, last = native_sequence(unit, projected, (h,), mask, reverse=reverse)
    return outputs, last


class GRUKernel(Kernel):
    """GRU; weights U [2H, H] and b [2H] of the gates z and r, V [H, H] and d [H] of the candidate; no options."""

    products: ClassVar[int] = 3
    whole: ClassVar[bool] = False

    def __init__(self, unit: Unit, *, length: int, batch: int, hidden: int, dtype: torch.dtype) -> None:
        super().__init__(unit, length=length, batch=batch, hidden=hidden, dtype=dtype)
        self._gates = Product(*unit.weights[:2], length=length, batch=batch, dtype=dtype)
        self._candidate = Product(*unit.weights[2:], length=length, batch=batch, dtype=dtype)
        resets = torch.empty(length, batch, hidden, dtype=dtype)  # r * h', the inputs of the candidate's product
        self.kept = (self._gates.empty(), self._candidate.empty(), resets)

    @property
    def kernels_alone(self) -> bool:
        return self._gates.packed and self._candidate.packed

    def forward(
        self, x: Tensor, before: States, after: States, mask: Tensor | None, *, start: int, reverse: bool
    ) -> None:
        gates, candidates, resets = (kept[start] for kept in self.kept)
        inputs = x, x.stride(0), gates, self._gates.bias
        masked, stride, sizes = mask_arguments(mask)[:2], after.strides[0], (self.batch, self.hidden)
        self._gates.forward(before.narrow[0], out=gates)
        run = kernel("gru_reset", self.dtype)
        run(*inputs, *masked, before.parts[0], stride, resets, *sizes)
        self._candidate.forward(resets, out=candidates)
        run = kernel("gru_forward", self.dtype)
        states = before.parts[0], after.parts[0], after.narrow, stride
        run(*inputs, candidates, self._candidate.bias, *masked, *states, *sizes)

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
        gates, candidates, _ = (kept[start] for kept in self.kept)
        inputs = x, x.stride(0), gates, self._gates.bias
        masked, sizes = mask_arguments(mask)[:2], (self.batch, self.hidden)
        state = before.parts[0], before.strides[0]
        d_gates, d_candidates = self._gates.gradients[start], self._candidate.gradients[start]
        run = kernel("gru_backward", self.dtype)
        run(
            *(*inputs, candidates, self._candidate.bias, *masked, *state, *output_arguments(outputs)[:2]),
            *(gradient, dx, dx.stride(0), d_gates, d_candidates, *sizes),
        )
        d_resets = torch.empty(sizes, dtype=self.dtype)
        self._candidate.backward(start, out=d_resets)
        run = kernel("gru_backward_reset", self.dtype)
        run(*inputs, *masked, *state, d_resets, gradient, dx, dx.stride(0), d_gates, *sizes)
        self._gates.add_backward(start, to=gradient[0])

    def weight_gradients(self, before: Tensor) -> tuple[Tensor, ...]:
        return *self._gates.weight_gradients(before), *self._candidate.weight_gradients(self.kept[2])
