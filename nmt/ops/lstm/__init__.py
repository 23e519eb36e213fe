"""LSTM, long short-term memory (Hochreiter and Schmidhuber 1997, with forget gate)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nmt.ops.recurrence import State, recurrent_product
from nmt.ops.unit import GateValues, OneProductKernel, Unit, Update, register

OutputActivation = Literal["tanh", "identity", "sigmoid"]
_ACTIVATIONS = {"tanh": torch.tanh, "identity": lambda c: c, "sigmoid": torch.sigmoid}


@register("lstm")
@dataclass(frozen=True, kw_only=True)
class LSTM(Unit):
    """i, f, o = sigmoid(x_ifo + U h' + b), g = tanh(x_g + V h' + d), c = i * g + f * c', h = o * tanh(c).

    Inputs x_i, x_f, x_o, x_g; one matrix, U (3H rows) above V (H rows), which are normalised separately with layer
    norm. With `peepholes` there are three vectors: w_i * c', w_f * c' and w_o * c are added in the sigmoids of i, f
    and o. `output_activation`, "identity" or "sigmoid", takes the place of this last tanh.
    """

    inputs = 4
    states = 2
    matrices = 1
    codes = {"output_activation": {"tanh": 0, "identity": 1, "sigmoid": 2}}
    native = "nmt.ops.lstm:LSTMKernel"
    triton = "nmt.ops.lstm.triton:LSTMKernel"

    peepholes: bool = False
    output_activation: OutputActivation = "tanh"

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        return self._step(x, state, seen)[1]

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        return self._step(x, state, state)[0]

    def _step(self, x: Tensor, state: State, seen: State) -> tuple[GateValues, State]:
        """The gates and the new state."""
        (recurrent,), hidden = self.recurrents, state[0].size(-1)
        i, f, o, g = (x + recurrent_product(seen[0], recurrent, widths=(3 * hidden, hidden))).chunk(4, -1)
        if self.peepholes:
            w_i, w_f, w_o = self.vectors
            i, f = i + w_i * seen[1], f + w_f * seen[1]
        i, f, g = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g)
        c = i * g + f * state[1]
        if self.peepholes:
            o = o + w_o * c
        o = torch.sigmoid(o)
        h = o * _ACTIVATIONS[self.output_activation](c)
        return GateValues({"i": i, "f": f, "o": o}, Update(g, i, f)), (h, c)

    @property
    def usual(self) -> bool:
        return not self.peepholes and self.output_activation == "tanh"


class LSTMKernel(OneProductKernel):
    """LSTM in C."""

    saved_widths = written_widths = (4,)
    norm_widths = ((3, 1),)
