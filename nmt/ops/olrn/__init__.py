"""The oLRN recurrence over a sequence: LRN with an output gate (Zhang and Sennrich, ACL 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.dispatch import choose
from nmt.ops.new_unit import register
from nmt.ops.olrn.reference import olrn_cell, olrn_reference
from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit

__all__ = ["olrn_cell", "olrn_sequence"]


def olrn_sequence(
    projected: Tensor, h: Tensor | None, mask: Tensor | None, *, reverse: bool = False, tanh: bool = False
) -> tuple[Tensor, Tensor]:
    """c = the state of LRN from p, q, r and h' (tanh of it if `tanh`); h = sigmoid(s - c) * c is carried on.

    projected [B, T, 4H] holds p, q, r, s; h [B, H] or None for zeros; mask [B, T] or None, rows keep
    their state where it is 0; `reverse` runs from the last time step to the first.
    Returns all states [B, T, H] in input order and the last one computed [B, H], in at least fp32
    (kernels: outputs in the type of `projected`, the state in fp32).
    """
    run = choose("olrn", olrn_reference, like=projected)
    return run(projected, h, mask, reverse=reverse, tanh=tanh)


@register("olrn")
@dataclass(frozen=True, kw_only=True)
class OLRN(ScanUnit):
    """c = the state of LRN after p, q, r and h'; h = sigmoid(s - c) * c is carried on; x holds p, q, r, s."""

    inputs: ClassVar[int] = 4
    functions: ClassVar[str] = "nmt.ops.olrn.cell"

    tanh: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        p, q, r, s = x.chunk(4, -1)
        (h,), (seen_h,) = state, seen
        c = torch.sigmoid(p + seen_h) * r + torch.sigmoid(q - seen_h) * h
        c = torch.tanh(c) if self.tanh else c
        return (torch.sigmoid(s - c) * c,)
