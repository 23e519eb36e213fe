"""LRN, the lightweight recurrent network (Zhang and Sennrich, ACL 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import GateValues, Update, register


@register("lrn")
@dataclass(frozen=True, kw_only=True)
class LRN(ScanUnit):
    """i = sigmoid(p + h'), f = sigmoid(q - h'), h = i * r + f * h', or the tanh of it; x holds p, q, r."""

    inputs: ClassVar[int] = 3
    functions: ClassVar[str] = "nmt.ops.lrn.triton"

    tanh: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        r, i, f = self._update(x, seen)
        h = i * r + f * state[0]
        return (torch.tanh(h) if self.tanh else h,)

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        update = self._update(x, state)
        return GateValues({"i": update.input, "f": update.forget}, None if self.tanh else update)

    def _update(self, x: Tensor, seen: State) -> Update:
        p, q, r = x.chunk(3, -1)
        return Update(r, torch.sigmoid(p + seen[0]), torch.sigmoid(q - seen[0]))
