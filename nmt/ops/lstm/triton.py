"""LSTM in Triton: one product and one kernel per step, forward and backward.

Without layer norm cuDNN can compute the same equations, together with the input products: see `nmt.ops.lstm.fused`.
"""

from __future__ import annotations

from torch import Tensor

from nmt.ops.lstm import LSTM
from nmt.ops.lstm.kernels import lstm_backward_kernel, lstm_forward_kernel
from nmt.ops.product import recurrent_gradients
from nmt.ops.row_kernel import RowKernel
from nmt.ops.unit import States, Step, rows_of


class LSTMKernel(RowKernel[LSTM]):
    """LSTM; saves its product."""

    saved_widths = (4,)
    written_widths = (4,)

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        product, (mask, sm_b) = self.saved[0][t], rows_of(mask)
        self.matrices[0].forward(before.operand[0], out=product)
        lstm_forward_kernel[(self.sizes.batch,)](
            x, product, *self.parameters[0], *before.parts, mask, *after.parts, after.operand,
            x.stride(0), sm_b, self.sizes.hidden, MASKED=mask is not None, **self.launch,
        )  # fmt: skip

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> Tensor:
        t, x, before, after, mask = step
        d_product, (mask, sm_b), (d_output, so_b) = self.written[0][t], rows_of(mask), rows_of(d_output)
        lstm_backward_kernel[(self.sizes.batch,)](
            x, self.saved[0][t], *self.parameters[0], before.parts[1], mask, pending, d_output, *gradient,
            dx, d_product, x.stride(0), sm_b, so_b, dx.stride(0), self.sizes.hidden,
            MASKED=mask is not None, PENDING=pending is not None, ADDED=d_output is not None, **self.launch,
        )  # fmt: skip
        return self.through(0, d_product)

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        hidden, product = self.sizes.hidden, self.saved[0] if self.unit.normalized else None
        return recurrent_gradients(
            self.matrices[0], operand=before.operand, d_product=self.written[0], d_sum=dx,
            product=product, widths=[3 * hidden, hidden],
        )  # fmt: skip
