"""SSRU, the simpler simple recurrent unit (Kim et al., WNGT 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import GateValues, Update, register


@register("ssru")
@dataclass(frozen=True, kw_only=True)
class SSRU(ScanUnit):
    """f = sigmoid(x_f + b_f), c = f * c' + (1 - f) * x_c, h = relu(c).

    x holds x_f, x_c; the weight is b_f; the state is h, which no step reads, and c.
    """

    inputs: ClassVar[int] = 2
    states: ClassVar[int] = 2
    vectors_each: ClassVar[int] = 1
    wide_memory: ClassVar[bool] = True
    functions: ClassVar[str] = "nmt.ops.ssru.triton"

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        x_f, x_c = x.chunk(2, -1)
        c = torch.lerp(x_c, state[1], torch.sigmoid(x_f + self.weights[0]))  # f * c' + (1 - f) * x_c
        return torch.relu(c), c

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        x_f, x_c = x.chunk(2, -1)
        f = torch.sigmoid(x_f + self.weights[0])
        return GateValues({"f": f}, Update(x_c, 1 - f, f))
