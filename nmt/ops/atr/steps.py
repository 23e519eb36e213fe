"""ATR in Triton with one step per call: one product and one kernel, forward and backward.

Whole sequences run in `nmt.ops.atr.triton` if their programs fit on the GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor

from nmt.ops.atr import ATR
from nmt.ops.atr.step_kernels import atr_step_backward_kernel, atr_step_forward_kernel
from nmt.ops.atr.triton import atr_whole
from nmt.ops.product import recurrent_gradients
from nmt.ops.recurrence import State
from nmt.ops.row_kernel import RowKernel
from nmt.ops.unit import States, Step, Unit, rows_of


class ATRKernel(RowKernel[ATR]):
    """ATR; saves its product; writes the gradients of the product before and after layer norm."""

    saved_widths = (1,)
    written_widths = (1, 1)

    @classmethod
    def whole(
        cls, units: Sequence[Unit], x: Tensor, state: Sequence[State] | None, mask: Tensor | None, *, reverse: bool
    ) -> tuple[Tensor, Tensor] | None:
        return atr_whole(cast("Sequence[ATR]", units), x, state, mask, reverse=reverse)

    @functools.cached_property
    def launch(self) -> dict[str, Any]:
        activation = self.unit.activation
        return super().launch | {
            "GATES": self.unit.gates,
            "TANH_CANDIDATE": activation == "candidate",
            "TANH_STATE": activation == "state",
        }

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        product, (mask, sm_b) = self.saved[0][t], rows_of(mask)
        self.matrices[0].forward(before.operand[0], out=product)
        atr_step_forward_kernel[(self.sizes.batch,)](
            x, product, *self.parameters[0], before.parts, mask, after.parts, after.operand,
            x.stride(0), sm_b, self.sizes.hidden, MASKED=mask is not None, **self.launch,
        )  # fmt: skip

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> Tensor:
        t, x, before, after, mask = step
        (d_product, d_sum), (mask, sm_b), (d_output, so_b) = (
            [written[t] for written in self.written], rows_of(mask), rows_of(d_output)
        )  # fmt: skip
        atr_step_backward_kernel[(self.sizes.batch,)](
            x, self.saved[0][t], *self.parameters[0], before.parts, mask, pending, d_output, gradient,
            dx, d_sum, d_product, x.stride(0), sm_b, so_b, dx.stride(0), self.sizes.hidden,
            MASKED=mask is not None, PENDING=pending is not None, ADDED=d_output is not None, **self.launch,
        )  # fmt: skip
        return self.through(0, d_product)

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        (d_product, d_sum), product = self.written, self.saved[0] if self.unit.normalized else None
        return recurrent_gradients(
            self.matrices[0], operand=before.operand, d_product=d_product, d_sum=d_sum,
            product=product, widths=[self.sizes.hidden],
        )  # fmt: skip
