"""LRN, the lightweight recurrent network (Zhang and Sennrich, ACL 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import register


@register("lrn")
@dataclass(frozen=True, kw_only=True)
class LRN(ScanUnit):
    """i = sigmoid(p + h'), f = sigmoid(q - h'), h = i * r + f * h', or the tanh of it; x holds p, q, r."""

    inputs: ClassVar[int] = 3
    functions: ClassVar[str] = "nmt.ops.lrn.triton"

    tanh: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        p, q, r = x.chunk(3, -1)
        (h,), (seen_h,) = state, seen
        h = torch.sigmoid(p + seen_h) * r + torch.sigmoid(q - seen_h) * h
        return (torch.tanh(h) if self.tanh else h,)
