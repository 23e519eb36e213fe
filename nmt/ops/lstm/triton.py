"""LSTM in Triton: one product and one kernel a step, forward as backward; see `nmt.ops.loop`.

Without layer norm cuDNN computes the same equations, if it may multiply the input, too: see `nmt.ops.lstm.fused`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.loop import run_loop
from nmt.ops.lstm.kernels import lstm_backward_kernel, lstm_forward_kernel
from nmt.ops.lstm.reference import lstm_reference
from nmt.ops.recurrence import Recurrent
from nmt.ops.steps import States, Steps, added, parameter_gradients, row_mask


class LSTMSteps(Steps):
    """LSTM; one matrix, no options. Saves its product."""

    parts: ClassVar[int] = 2
    products: ClassVar[int] = 4
    saved_widths: ClassVar[tuple[int, ...]] = (4,)
    gradient_widths: ClassVar[tuple[int, ...]] = (4,)

    def forward(self, t: int, x: Tensor, mask: Tensor | None, *, before: States, after: States) -> None:
        (recurrent,), product = self.recurrents, self.saved[0][t]
        torch.mm(before.narrow, recurrent.weight.t(), out=product)
        lstm_forward_kernel[(self.batch,)](
            x, product, *recurrent[1:], *before.parts, row_mask(mask)[0], *after.parts, after.narrow,
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
        (recurrent,), d_product = self.recurrents, self.gradients[0][t]
        d_output, so_b = added(d_output)
        lstm_backward_kernel[(self.batch,)](
            x, self.saved[0][t], *recurrent[1:], before.parts[1], row_mask(mask)[0], pending, d_output, *gradient,
            dx, d_product, x.stride(0), row_mask(mask)[1], so_b, dx.stride(0), self.hidden,
            MASKED=mask is not None, PENDING=pending is not None, ADDED=d_output is not None, **self.launch,
        )  # fmt: skip
        return torch.mm(d_product, recurrent.weight)

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        (recurrent,), (product,), (d_product,) = self.recurrents, self.saved, self.gradients
        widths = [3 * self.hidden, self.hidden]
        return parameter_gradients(
            recurrent, operand=before.narrow, product=product, d_product=d_product, d_sum=dx, widths=widths
        )


def lstm_triton(
    projected: Tensor, recurrent: Recurrent, h: Tensor | None, c: Tensor | None, mask: Tensor | None, *, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `nmt.ops.lstm.lstm_sequence`."""
    outputs, h_last, c_last = run_loop(
        "lstm", projected, [recurrent], [h, c], mask, reverse=reverse,
        reference=lambda: lstm_reference(projected, recurrent, h, c, mask, reverse=reverse),
    )  # fmt: skip
    return outputs, h_last, c_last
