"""minLSTM, the LSTM whose gates look at the input alone and add up to 1 (Feng et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.min_gru import positive_part
from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import register


@register("min_lstm")
@dataclass(frozen=True, kw_only=True)
class MinLSTM(ScanUnit):
    """f = sigmoid(x_f + b_f), i = sigmoid(x_i + b_i), g = x_h + b_h, h = f / (f + i) * h' + i / (f + i) * g.

    If it is `positive`, `positive_part` is applied to g. x holds x_f, x_i, x_h; weights are b_f, b_i and b_h.
    """

    inputs: ClassVar[int] = 3
    vectors_each: ClassVar[int] = 3
    functions: ClassVar[str] = "nmt.ops.min_lstm.triton"

    positive: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        f, i, candidate = (part + bias for part, bias in zip(x.chunk(3, -1), self.weights, strict=True))
        if self.positive:
            candidate = positive_part(candidate)
        share = torch.sigmoid(F.logsigmoid(f) - F.logsigmoid(i))  # f / (f + i), though both be too small for a float
        return (torch.lerp(candidate, state[0], share),)
