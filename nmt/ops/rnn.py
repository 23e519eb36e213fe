"""The plain recurrent unit (Elman 1990)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nmt.ops.recurrence import State, recurrent_product
from nmt.ops.unit import Unit, register

Activation = Literal["tanh", "relu"]


@register("rnn")
@dataclass(frozen=True, kw_only=True)
class RNN(Unit):
    """h = tanh(x + U h' + b), or relu in place of tanh. Input x; matrix U [H, H]."""

    inputs = 1
    matrices = 1
    codes = {"activation": {"tanh": 0, "relu": 1}}

    activation: Activation = "tanh"

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        total = x + recurrent_product(seen[0], self.recurrents[0])
        return (torch.tanh(total) if self.activation == "tanh" else torch.relu(total),)
