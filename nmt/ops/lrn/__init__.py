"""The LRN recurrence over a sequence (Zhang and Sennrich, ACL 2019)."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.dispatch import choose
from nmt.ops.lrn.reference import lrn_cell, lrn_reference

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
