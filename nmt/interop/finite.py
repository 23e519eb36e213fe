"""Weights with NaN or infinite values, which are refused wherever weights are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from nmt.errors import printable
from nmt.interop.weights_file import DamagedError

_SHOWN = 3
"""Tensors named in a message; there can be hundreds."""
_LONGEST_NAME = 80


def check_finite(weights: Mapping[str, Tensor], *, file: Path) -> None:
    """Raise DamagedError, which names file, tensors and counts, if a value is NaN or infinite."""
    if wrong := not_finite(weights):
        shown = "; ".join(wrong[:_SHOWN])
        rest = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise DamagedError(f"{file}: {shown}{rest}")


def not_finite(weights: Mapping[str, Tensor]) -> list[str]:
    """Each tensor with values that are NaN or infinite, and how many, in words."""
    found = [(name, _count(weight)) for name, weight in sorted(weights.items())]
    return [
        f"{printable(name[:_LONGEST_NAME])} contains NaN or infinite values ({count:,} of {weights[name].numel():,})"
        for name, count in found
        if count
    ]


def _count(weight: Tensor) -> int:
    """How many values of a tensor are NaN or infinite."""
    # The sum, read off in one pass, is finite only if all are; it can be infinite by itself, so then each is looked at.
    if not weight.is_floating_point() or (weight.dtype.itemsize > 1 and bool(weight.sum().isfinite())):
        return 0
    return int((~weight.float().isfinite() if weight.dtype.itemsize < 2 else ~weight.isfinite()).sum())
