"""GRU, the gated recurrent unit (Cho et al., EMNLP 2014)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nmt.ops.native import kernel
from nmt.ops.recurrence import State, recurrent_product
from nmt.ops.unit import CKernel, GateValues, Step, Unit, Update, register, rows_of

Reset = Literal["before", "after"]


@register("gru")
@dataclass(frozen=True, kw_only=True)
class GRU(Unit):
    """z, r = sigmoid(x_zr + U h' + b), g = tanh(x_h + V (r * h') + d), h = z * h' + (1 - z) * g.

    Inputs x_z, x_r, x_h; matrices U [2H, H] and V [H, H]. The reset gate acts before the product with V or, with
    `reset="after"`, as in cuDNN, after it: g = tanh(x_h + r * (V h' + d)). z keeps the old state.
    """

    inputs = 3
    matrices = 2
    codes = {"reset": {"before": 0, "after": 1}}
    native = "nmt.ops.gru:GRUKernel"
    triton = "nmt.ops.gru.triton:GRUKernel"

    reset: Reset = "before"

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        z, _, g = self._parts(x, seen)
        return (torch.lerp(g, state[0], z),)  # z * h' + (1 - z) * g

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        z, r, g = self._parts(x, state)
        return GateValues({"z": z, "r": r}, Update(g, 1 - z, z))

    def _parts(self, x: Tensor, seen: State) -> tuple[Tensor, Tensor, Tensor]:
        """z, r and g."""
        x_z, x_r, x_h = x.chunk(3, -1)
        gates, candidate = self.recurrents
        u_z, u_r = recurrent_product(seen[0], gates).chunk(2, -1)
        z, r = torch.sigmoid(x_z + u_z), torch.sigmoid(x_r + u_r)
        if self.reset == "before":
            v = recurrent_product(r * seen[0], candidate)
        else:
            v = r * recurrent_product(seen[0], candidate)
        return z, r, torch.tanh(x_h + v)

    @property
    def usual(self) -> bool:
        return self.reset == "before"


class GRUKernel(CKernel):
    """GRU in C; saves the products of both matrices and r * h', the operand of the second matrix."""

    saved_widths = (2, 1, 1)
    written_widths = (2, 1)
    norm_widths = (2,), (1,)

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        gates, candidates, resets = (saved[t] for saved in self.saved)
        own, other = self.parameters
        inputs, masked, (_, batch, hidden, dtype, _) = (*rows_of(x), gates, *own), rows_of(mask), self.sizes
        self.matrices[0].forward(before.operand[0], out=gates)
        kernel("gru_reset", dtype, source=self.unit.native_file)(
            *inputs, *masked, before.parts, hidden, resets, batch, hidden
        )
        self.matrices[1].forward(resets, out=candidates)
        run = kernel("gru_forward", dtype, source=self.unit.native_file)
        states = before.parts, after.parts, after.operand, hidden
        run(*inputs, candidates, *other, *masked, *states, batch, hidden)

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> None:
        t, x, before, after, mask = step
        (gates, candidates, _), (d_gates, d_candidates) = (
            [tensor[t] for tensor in tensors] for tensors in (self.saved, self.written)
        )
        own, other = self.parameters
        inputs, masked, (_, batch, hidden, dtype, _) = (*rows_of(x), gates, *own), rows_of(mask), self.sizes
        run = kernel("gru_backward", dtype, source=self.unit.native_file)
        run(
            *(*inputs, candidates, *other, *masked, before.parts, hidden, *rows_of(d_output)),
            *(gradient, *rows_of(dx), d_candidates, batch, hidden),
        )
        d_resets = torch.empty(batch, hidden, dtype=dtype)
        self.matrices[1].backward(d_candidates, out=d_resets)
        run = kernel("gru_backward_reset", dtype, source=self.unit.native_file)
        run(*inputs, *masked, before.parts, hidden, d_resets, gradient, *rows_of(dx), d_gates, batch, hidden)
        self.add_backward(0, d_gates, to=gradient[0])
