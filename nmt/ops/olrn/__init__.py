"""The oLRN recurrence over a sequence: LRN with an output gate (Zhang and Sennrich, ACL 2019)."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.dispatch import choose
from nmt.ops.olrn.reference import olrn_cell, olrn_reference

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
