"""The loop of a decoder layer that attends, as one operation: two cells a step with attention between them."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.conditional.native import AttentionParameters, Result, conditional_native
from nmt.ops.dispatch import use_native
from nmt.ops.native.unit import KERNELS, Unit

__all__ = ["AttentionParameters", "Result", "can_run", "conditional_native"]


def can_run(lower: Unit | None, higher: Unit | None, *, like: Tensor, keys: Tensor) -> bool:
    """Whether `conditional_native` can take these cells and tensors such as `like`; else the loop must be written out."""
    known = lower is not None and higher is not None and lower.name in KERNELS and higher.name in KERNELS
    return known and like.dtype == keys.dtype and use_native(like)
