"""GRU in Triton: two products and two kernels per step, forward and backward."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.gru import GRU
from nmt.ops.gru.kernels import (
    gru_gates_backward_kernel,
    gru_gates_forward_kernel,
    gru_state_backward_kernel,
    gru_state_forward_kernel,
)
from nmt.ops.product import recurrent_gradients
from nmt.ops.row_kernel import RowKernel
from nmt.ops.unit import States, Step, rows_of


class GRUKernel(RowKernel[GRU]):
    """GRU; saves the products of both matrices and r * h', the operand of the second matrix."""

    saved_widths = (2, 1, 1)
    written_widths = (2, 1)

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        product, candidate_product, reset = (saved[t] for saved in self.saved)
        (mask, sm_b), grid, hidden = rows_of(mask), (self.sizes.batch,), self.sizes.hidden
        h, z = before.parts, torch.empty_like(before.parts)
        self.matrices[0].forward(before.operand[0], out=product)
        gru_gates_forward_kernel[grid](
            x, product, *self.parameters[0], h, z, reset, x.stride(0), hidden, **self.launch
        )  # fmt: skip
        self.matrices[1].forward(reset, out=candidate_product)
        gru_state_forward_kernel[grid](
            x, candidate_product, *self.parameters[1], h, z, mask, after.parts, after.operand,
            x.stride(0), sm_b, hidden, MASKED=mask is not None, **self.launch,
        )  # fmt: skip

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> Tensor:
        t, x, before, after, mask = step
        (product, candidate_product, _), (d_product, d_candidate_product) = (
            [tensor[t] for tensor in tensors] for tensors in (self.saved, self.written)
        )
        (mask, sm_b), (d_output, so_b) = rows_of(mask), rows_of(d_output)
        gates, candidate = self.parameters
        h, grid, hidden = before.parts, (self.sizes.batch,), self.sizes.hidden
        gru_state_backward_kernel[grid](
            x, product, candidate_product, *gates, *candidate, h, mask, pending, d_output,
            gradient, dx, d_candidate_product, x.stride(0), sm_b, so_b, dx.stride(0), hidden,
            MASKED=mask is not None, PENDING=pending is not None, ADDED=d_output is not None, **self.launch,
        )  # fmt: skip
        d_reset = self.through(1, d_candidate_product)
        gru_gates_backward_kernel[grid](
            x, product, *gates, h, d_reset, gradient, dx, d_product, x.stride(0), dx.stride(0), hidden, **self.launch
        )  # fmt: skip
        return self.through(0, d_product)

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        hidden, normalized = self.sizes.hidden, self.unit.normalized
        d_sums, operands = dx.split((2 * hidden, hidden), -1), (before.operand, self.saved[2])
        each = zip(self.matrices, operands, self.written, d_sums, self.saved[:2], (2 * hidden, hidden), strict=True)
        return [
            part
            for matrix, operand, d_product, d_sum, product, width in each
            for part in recurrent_gradients(
                matrix, operand=operand, d_product=d_product, d_sum=d_sum,
                product=product if normalized else None, widths=[width],
            )
        ]  # fmt: skip
