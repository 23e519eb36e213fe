"""minGRU, the GRU whose gate depends on the input only (Feng et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import GateValues, Update, register


@register("min_gru")
@dataclass(frozen=True, kw_only=True)
class MinGRU(ScanUnit):
    """z = sigmoid(x_z + b_z), g = x_h + b_h, h = (1 - z) * h' + z * g.

    With `positive`, `positive_part` is applied to g. x holds x_z, x_h; weights are b_z and b_h.
    """

    inputs: ClassVar[int] = 2
    vectors_each: ClassVar[int] = 2
    functions: ClassVar[str] = "nmt.ops.min_gru.triton"

    positive: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        z, g = self._parts(x)
        return (torch.lerp(state[0], g, z),)

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        z, g = self._parts(x)
        return GateValues({"z": z}, Update(g, z, 1 - z))

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z and g."""
        x_z, x_h = x.chunk(2, -1)
        b_z, b_h = self.weights
        g = x_h + b_h
        return torch.sigmoid(x_z + b_z), positive_part(g) if self.positive else g


def positive_part(x: Tensor) -> Tensor:
    """x + 0.5 where x >= 0 and sigmoid(x) elsewhere: continuous and positive (Feng et al., 2024, appendix B)."""
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))
