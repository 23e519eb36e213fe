"""oLRN, LRN with an output gate (Zhang and Sennrich, ACL 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import register


@register("olrn")
@dataclass(frozen=True, kw_only=True)
class OLRN(ScanUnit):
    """c = the state of LRN after p, q, r and h'; h = sigmoid(s - c) * c is carried on; x holds p, q, r, s."""

    inputs: ClassVar[int] = 4
    functions: ClassVar[str] = "nmt.ops.olrn.triton"

    tanh: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        p, q, r, s = x.chunk(4, -1)
        (h,), (seen_h,) = state, seen
        c = torch.sigmoid(p + seen_h) * r + torch.sigmoid(q - seen_h) * h
        c = torch.tanh(c) if self.tanh else c
        return (torch.sigmoid(s - c) * c,)
