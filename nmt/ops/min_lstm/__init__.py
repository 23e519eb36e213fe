"""minLSTM, the LSTM whose gates depend on the input only and add up to 1 (Feng et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.min_gru import positive_part
from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import GateValues, Update, register


@register("min_lstm")
@dataclass(frozen=True, kw_only=True)
class MinLSTM(ScanUnit):
    """f = sigmoid(x_f + b_f), i = sigmoid(x_i + b_i), g = x_h + b_h, h = f / (f + i) * h' + i / (f + i) * g.

    With `positive`, `positive_part` is applied to g. x holds x_f, x_i, x_h; weights are b_f, b_i and b_h.
    """

    inputs: ClassVar[int] = 3
    vectors_each: ClassVar[int] = 3
    functions: ClassVar[str] = "nmt.ops.min_lstm.triton"

    positive: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        f, i, g = self._parts(x)
        return (torch.lerp(g, state[0], _share(f, i)),)

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        f, i, g = self._parts(x)
        return GateValues({"f": torch.sigmoid(f), "i": torch.sigmoid(i)}, Update(g, _share(i, f), _share(f, i)))

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The arguments of the sigmoids of f and i, and g."""
        f, i, g = (part + bias for part, bias in zip(x.chunk(3, -1), self.weights, strict=True))
        return f, i, positive_part(g) if self.positive else g


def _share(one: Tensor, other: Tensor) -> Tensor:
    """one / (one + other) for the sigmoids of both arguments, even if the sigmoids are too small for a float."""
    return torch.sigmoid(F.logsigmoid(one) - F.logsigmoid(other))
