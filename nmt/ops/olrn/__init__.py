"""oLRN, LRN with an output gate (Zhang and Sennrich, ACL 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import GateValues, Update, register


@register("olrn")
@dataclass(frozen=True, kw_only=True)
class OLRN(ScanUnit):
    """c = the state of LRN after p, q, r and h'; h = o * c, o = sigmoid(s - c), is carried on; x holds p, q, r, s."""

    inputs: ClassVar[int] = 4
    functions: ClassVar[str] = "nmt.ops.olrn.triton"

    tanh: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        return self._step(x, state, seen)[1]

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        return self._step(x, state, state)[0]

    def _step(self, x: Tensor, state: State, seen: State) -> tuple[GateValues, State]:
        """The gates and the new state."""
        p, q, r, s = x.chunk(4, -1)
        i, f = torch.sigmoid(p + seen[0]), torch.sigmoid(q - seen[0])
        c = i * r + f * state[0]
        c = torch.tanh(c) if self.tanh else c
        o = torch.sigmoid(s - c)
        # The carried state is o * c, so the output gate is a factor of both the input and the forget gate.
        return GateValues({"i": i, "f": f, "o": o}, None if self.tanh else Update(r, o * i, o * f)), (o * c,)
