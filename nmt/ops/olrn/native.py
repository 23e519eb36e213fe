"""oLRN with its C kernel, which is called just as LRN's."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from nmt.ops.lrn.native import LRNKernel
from nmt.ops.native.sequence import native_sequence
from nmt.ops.unit import Unit


def olrn_native(
    projected: Tensor, h: Tensor | None, mask: Tensor | None, *, reverse: bool, tanh: bool
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.olrn.olrn_sequence`."""
    outputs, last = native_sequence(Unit("olrn", options={"tanh": tanh}), projected, (h,), mask, reverse=reverse)
    return outputs, last


class OLRNKernel(LRNKernel):
    """oLRN; no weights; option `tanh`."""

    products: ClassVar[int] = 4
