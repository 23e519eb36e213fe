"""The SRU recurrence over a sequence (Lei et al., EMNLP 2018, as Zero has it)."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.dispatch import choose
from nmt.ops.sru.reference import sru_cell, sru_reference

__all__ = ["sru_cell", "sru_sequence"]


def sru_sequence(
    projected: Tensor,
    peephole_forget: Tensor,
    peephole_reset: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """f = sigmoid(x_f + v_f * c'), c = f * c' + (1 - f) * x_c, r = sigmoid(x_r + v_r * c'), h = r * c + (1 - r) * x_h.

    projected [B, T, 4H] holds x_r, x_f, x_c, x_h; peepholes v_f, v_r [H]; h, c [B, H] or None for zeros
    (h matters only to rows whose first steps are dead); mask [B, T] or None, rows keep their state
    where it is 0; `reverse` runs from the last time step to the first.
    Returns all h [B, T, H] in input order and the last h and c computed [B, H], in at least fp32
    (kernels: outputs in the type of `projected`, the state in fp32).
    """
    run = choose("sru", sru_reference, like=projected)
    return run(projected, peephole_forget, peephole_reset, h, c, mask, reverse=reverse)
