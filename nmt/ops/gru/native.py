"""GRU with its C kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.gru import GRU
from nmt.ops.native import kernel
from nmt.ops.native.unit_kernel import CKernel
from nmt.ops.product import recurrent_gradients
from nmt.ops.unit import States, Step, rows_of


class GRUKernel(CKernel[GRU]):
    """GRU; saves the products of both matrices and r * h', the operand of the second matrix."""

    saved_widths = (2, 1, 1)
    written_widths = (2, 1)

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        gates, candidates, resets = (saved[t] for saved in self.saved)
        (bias, *_), (candidate_bias, *_) = self.parameters
        inputs, masked, (_, batch, hidden, dtype, _) = (*rows_of(x), gates, bias), rows_of(mask), self.sizes
        self.matrices[0].forward(before.operand[0], out=gates)
        kernel("gru_reset", dtype)(*inputs, *masked, before.parts, hidden, resets, batch, hidden)
        self.matrices[1].forward(resets, out=candidates)
        run = kernel("gru_forward", dtype)
        states = before.parts, after.parts, after.operand, hidden
        run(*inputs, candidates, candidate_bias, *masked, *states, batch, hidden)

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> None:
        t, x, before, after, mask = step
        (gates, candidates, _), (d_gates, d_candidates) = (
            [tensor[t] for tensor in tensors] for tensors in (self.saved, self.written)
        )
        (bias, *_), (candidate_bias, *_) = self.parameters
        inputs, masked, (_, batch, hidden, dtype, _) = (*rows_of(x), gates, bias), rows_of(mask), self.sizes
        run = kernel("gru_backward", dtype)
        run(
            *(*inputs, candidates, candidate_bias, *masked, before.parts, hidden, *rows_of(d_output)),
            *(gradient, *rows_of(dx), d_gates, d_candidates, batch, hidden),
        )
        d_resets = torch.empty(batch, hidden, dtype=dtype)
        self.matrices[1].backward(d_candidates, out=d_resets)
        run = kernel("gru_backward_reset", dtype)
        run(*inputs, *masked, before.parts, hidden, d_resets, gradient, *rows_of(dx), d_gates, batch, hidden)
        self.add_backward(0, d_gates, to=gradient[0])

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        operands = before.operand, self.saved[2]
        return [
            part
            for matrix, operand, written in zip(self.matrices, operands, self.written, strict=True)
            for part in recurrent_gradients(matrix, operand=operand, d_product=written, d_sum=written)
        ]
