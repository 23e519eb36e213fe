"""GRU in Triton: two products and two kernels a step, forward as backward; see `nmt.ops.loop`."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.gru.kernels import (
    gru_gates_backward_kernel,
    gru_gates_forward_kernel,
    gru_state_backward_kernel,
    gru_state_forward_kernel,
)
from nmt.ops.gru.reference import gru_reference
from nmt.ops.loop import run_loop
from nmt.ops.recurrence import Recurrent
from nmt.ops.steps import States, Steps, added, parameter_gradients, row_mask


class GRUSteps(Steps):
    """GRU; matrices: gates, candidate; no options. Saves the product of each, and r * h."""

    products: ClassVar[int] = 3
    matrices: ClassVar[int] = 2
    saved_widths: ClassVar[tuple[int, ...]] = (2, 1, 1)
    gradient_widths: ClassVar[tuple[int, ...]] = (2, 1)

    def forward(self, t: int, x: Tensor, mask: Tensor | None, *, before: States, after: States) -> None:
        gates, candidate = self.recurrents
        product, candidate_product, reset = (saved[t] for saved in self.saved)
        h, z, grid = before.parts[0], torch.empty_like(before.parts[0]), (self.batch,)
        torch.mm(before.narrow, gates.weight.t(), out=product)
        gru_gates_forward_kernel[grid](
            x, product, *gates[1:], h, z, reset, x.stride(0), self.hidden, **self.launch
        )  # fmt: skip
        torch.mm(reset, candidate.weight.t(), out=candidate_product)
        gru_state_forward_kernel[grid](
            x, candidate_product, *candidate[1:], h, z, row_mask(mask)[0], after.parts[0], after.narrow,
            x.stride(0), row_mask(mask)[1], self.hidden, MASKED=mask is not None, **self.launch,
        )  # fmt: skip

    def backward(
        self,
        t: int,
        x: Tensor,
        mask: Tensor | None,
        *,
        before: States,
        gradient: Tensor,
        pending: Tensor | None,
        d_output: Tensor | None,
        dx: Tensor,
    ) -> Tensor:
        gates, candidate = self.recurrents
        product, candidate_product, _ = (saved[t] for saved in self.saved)
        d_product, d_candidate_product = (part[t] for part in self.gradients)
        h, grid = before.parts[0], (self.batch,)
        d_output, so_b = added(d_output)
        gru_state_backward_kernel[grid](
            x, product, candidate_product, *gates[1:], *candidate[1:], h, row_mask(mask)[0], pending, d_output,
            gradient[0], dx, d_candidate_product, x.stride(0), row_mask(mask)[1], so_b, dx.stride(0), self.hidden,
            MASKED=mask is not None, PENDING=pending is not None, ADDED=d_output is not None, **self.launch,
        )  # fmt: skip
        d_reset = torch.mm(d_candidate_product, candidate.weight)
        gru_gates_backward_kernel[grid](
            x, product, *gates[1:], h, d_reset, gradient[0], dx, d_product, x.stride(0), dx.stride(0), self.hidden,
            **self.launch,
        )  # fmt: skip
        return torch.mm(d_product, gates.weight)

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        (gates, candidate), (product, candidate_product, reset) = self.recurrents, self.saved
        d_product, d_candidate_product = self.gradients
        d_gates, d_candidate = dx.split((2 * self.hidden, self.hidden), -1)
        return [
            *parameter_gradients(
                gates, operand=before.narrow, product=product, d_product=d_product,
                d_sum=d_gates, widths=[2 * self.hidden],
            ),
            *parameter_gradients(
                candidate, operand=reset, product=candidate_product, d_product=d_candidate_product,
                d_sum=d_candidate, widths=[self.hidden],
            ),
        ]  # fmt: skip


def gru_triton(
    projected: Tensor, gates: Recurrent, candidate: Recurrent, h: Tensor | None, mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.gru.gru_sequence`."""
    outputs, last = run_loop(
        "gru", projected, [gates, candidate], [h], mask, reverse=reverse,
        reference=lambda: gru_reference(projected, gates, candidate, h, mask, reverse=reverse),
    )  # fmt: skip
    return outputs, last
