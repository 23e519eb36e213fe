"""The loop of a decoder layer that attends, as one operation: two cells a step with attention between them."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.conditional.native import AttentionParameters, Result, conditional_native
from nmt.ops.conditional.one_to_one import one_to_one_native
from nmt.ops.dispatch import use_native
from nmt.ops.native.unit import KERNELS, Unit

__all__ = ["AttentionParameters", "Result", "can_run", "conditional_native", "one_to_one_native"]


def can_run(lower: Unit | None, higher: Unit | None, *, like: Tensor) -> bool:
    """Whether these loops can take these cells and tensors such as `like`; else they must be written out."""
    known = lower is not None and higher is not None and lower.name in KERNELS and higher.name in KERNELS
    return known and use_native(like)
