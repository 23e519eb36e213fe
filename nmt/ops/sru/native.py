"""SRU with its C kernel."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from nmt.ops.lrn.native import LRNKernel
from nmt.ops.native.sequence import native_sequence
from nmt.ops.unit import Unit


def sru_native(
    projected: Tensor,
    peephole_forget: Tensor,
    peephole_reset: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `nmt.ops.sru.sru_sequence`."""
    unit = Unit("sru", (peephole_forget, peephole_reset))
    outputs, h, c = native_sequence(unit, projected, (h, c), mask, reverse=reverse)
    return outputs, h, c


class SRUKernel(LRNKernel):
    """SRU; weights v_f [H] and v_r [H]; state h, c; no options."""

    parts: ClassVar[int] = 2
    products: ClassVar[int] = 4
