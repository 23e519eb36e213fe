"""ATR, the addition-subtraction twin-gated recurrent unit (Zhang et al., EMNLP 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nmt.ops.recurrence import State, recurrent_product
from nmt.ops.unit import GateValues, OneProductKernel, Unit, Update, register

Activation = Literal["none", "output", "state", "candidate"]
Gates = Literal["twin", "coupled", "coupled_input"]


@register("atr")
@dataclass(frozen=True, kw_only=True)
class ATR(Unit):
    """q = U h' + b, i = sigmoid(p + q), f = sigmoid(p - q), h = i * p + f * h'.

    Input p; matrix U [H, H]. `activation` applies a tanh to the `output` only (h is carried without it), to the new
    `state`, or to the `candidate` p, which is multiplied by i; `gates="coupled"`: i = 1 - f, `coupled_input`:
    f = 1 - i.
    """

    inputs = 1
    matrices = 1
    codes = {
        "activation": {"none": 0, "output": 0, "state": 1, "candidate": 2},
        "gates": {"twin": 0, "coupled": 3, "coupled_input": 6},
    }
    native = "nmt.ops.atr:ATRKernel"
    triton = "nmt.ops.atr.triton:ATRKernel"

    activation: Activation = "none"
    gates: Gates = "twin"

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        update = self._update(x, seen)
        new = update.input * update.value + update.forget * state[0]
        return (torch.tanh(new) if self.activation == "state" else new,)

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        update = self._update(x, state)
        named = {"i": update.input, "f": update.forget}
        return GateValues(named, None if self.activation == "state" else update)

    def _update(self, x: Tensor, seen: State) -> Update:
        (recurrent,) = self.recurrents
        q = recurrent_product(seen[0], recurrent)
        if self.gates == "coupled":
            f = torch.sigmoid(x - q)
            i = 1 - f
        else:
            i = torch.sigmoid(x + q)
            f = 1 - i if self.gates == "coupled_input" else torch.sigmoid(x - q)
        return Update(torch.tanh(x) if self.activation == "candidate" else x, i, f)

    @property
    def tanh_output(self) -> bool:
        return self.activation == "output"


class ATRKernel(OneProductKernel):
    """ATR in C."""

    saved_widths = (1,)
    written_widths = (1, 1)
    norm_widths = ((1,),)

    def sums(self, dx: Tensor) -> Sequence[Tensor]:
        return self.written[1:] if self.unit.normalized else self.written[:1]
