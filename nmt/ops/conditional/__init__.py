"""The loop of a decoder layer that attends, as one operation: two cells a step with attention between them."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.conditional.native import AttentionParameters, Result, conditional_native
from nmt.ops.conditional.one_to_one import one_to_one_native
from nmt.ops.dispatch import use_native
from nmt.ops.native.unit import KERNELS, Unit

__all__ = ["AttentionParameters", "Result", "conditional_native", "fused_units", "one_to_one_native"]


def fused_units(lower: Unit | None, higher: Unit | None, *, like: Tensor) -> tuple[Unit, Unit] | None:
    """Both cells, if these loops can take them and tensors such as `like`; None where a loop must be written out."""
    if lower is None or higher is None or lower.name not in KERNELS or higher.name not in KERNELS:
        return None
    return (lower, higher) if use_native(like) else None
