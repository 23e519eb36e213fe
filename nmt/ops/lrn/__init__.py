"""The LRN recurrence over a sequence (Zhang and Sennrich, ACL 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.dispatch import choose
from nmt.ops.lrn.reference import lrn_cell, lrn_reference
from nmt.ops.new_unit import register
from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit

__all__ = ["lrn_cell", "lrn_sequence"]


def lrn_sequence(
    projected: Tensor, h: Tensor | None, mask: Tensor | None, *, reverse: bool = False, tanh: bool = False
) -> tuple[Tensor, Tensor]:
    """i = sigmoid(p + h'), f = sigmoid(q - h'), h = i * r + f * h' (tanh of it if `tanh`), for each time step.

    projected [B, T, 3H] holds p, q, r; h [B, H] or None for zeros; mask [B, T] or None, rows keep
    their state where it is 0; `reverse` runs from the last time step to the first.
    Returns all states [B, T, H] in input order and the last one computed [B, H], in at least fp32
    (kernels: outputs in the type of `projected`, the state in fp32).
    """
    run = choose("lrn", lrn_reference, like=projected)
    return run(projected, h, mask, reverse=reverse, tanh=tanh)


@register("lrn")
@dataclass(frozen=True, kw_only=True)
class LRN(ScanUnit):
    """i = sigmoid(p + h'), f = sigmoid(q - h'), h = i * r + f * h', or the tanh of it; x holds p, q, r."""

    inputs: ClassVar[int] = 3
    functions: ClassVar[str] = "nmt.ops.lrn.cell"

    tanh: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        p, q, r = x.chunk(3, -1)
        (h,), (seen_h,) = state, seen
        h = torch.sigmoid(p + seen_h) * r + torch.sigmoid(q - seen_h) * h
        return (torch.tanh(h) if self.tanh else h,)
