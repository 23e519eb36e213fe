"""ATR with its C kernel."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.atr import ATR
from nmt.ops.native import kernel
from nmt.ops.native.unit_kernel import OneProductKernel
from nmt.ops.unit import Step, rows_of


class ATRKernel(OneProductKernel[ATR]):
    """ATR."""

    saved_widths = (1,)
    written_widths = (1,)

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        product, (_, batch, hidden, dtype, _) = self.saved[0][t], self.sizes
        self.matrices[0].forward(before.operand[0], out=product)
        run = kernel("atr_forward", dtype)
        run(
            *(*rows_of(x), product, self.parameters[0][0], *rows_of(mask)),
            *(before.parts, after.parts, after.operand, hidden, batch, hidden, *self.unit.numbers),
        )

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> None:
        t, x, before, after, mask = step
        written, (_, batch, hidden, dtype, _) = self.written[0][t], self.sizes
        run = kernel("atr_backward", dtype)
        run(
            *(*rows_of(x), self.saved[0][t], self.parameters[0][0], *rows_of(mask)),
            *(before.parts, after.parts, hidden, *rows_of(d_output)),
            *(gradient, *rows_of(dx), written, batch, hidden, *self.unit.numbers),
        )
        self.add_backward(0, written, to=gradient[0])
