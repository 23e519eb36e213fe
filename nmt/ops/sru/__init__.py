"""SRU, the simple recurrent unit (Lei et al., EMNLP 2018), as in Zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import GateValues, Update, register


@register("sru")
@dataclass(frozen=True, kw_only=True)
class SRU(ScanUnit):
    """f = sigmoid(x_f + v_f * c'), c = f * c' + (1 - f) * x_c, r = sigmoid(x_r + v_r * c'), h = r * c + (1 - r) * x_h.

    x holds x_r, x_f, x_c, x_h; weights are v_f and v_r; the state is h, which no step reads, and c.
    """

    inputs: ClassVar[int] = 4
    states: ClassVar[int] = 2
    vectors_each: ClassVar[int] = 2
    functions: ClassVar[str] = "nmt.ops.sru.triton"

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        _, _, x_c, x_h = x.chunk(4, -1)
        f, r = self._gates(x, seen)
        c = torch.lerp(x_c, state[1], f)  # f * c' + (1 - f) * x_c
        return torch.lerp(x_h, c, r), c

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        f, r = self._gates(x, state)
        return GateValues({"f": f, "r": r}, Update(x.chunk(4, -1)[2], 1 - f, f))

    def _gates(self, x: Tensor, seen: State) -> tuple[Tensor, Tensor]:
        x_r, x_f, _, _ = x.chunk(4, -1)
        v_f, v_r = self.weights
        return torch.sigmoid(torch.addcmul(x_f, v_f, seen[1])), torch.sigmoid(torch.addcmul(x_r, v_r, seen[1]))
