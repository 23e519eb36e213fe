"""Dropout whose mask is a function of one random number, so that nothing is kept for the gradient."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from nmt.ops.dispatch import use_native
from nmt.ops.dropout.native import native_dropout

__all__ = ["dropout"]


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero each value of `x` with probability `p` and multiply the others by 1 / (1 - p); the type stays.

    0 <= p <= 1. The mask follows from torch's generator of the device, and not from the number of threads; it is
    not the same with and without the C kernel.
    """
    if 0 < p < 1 and use_native(x):
        return native_dropout(x, p)
    return F.dropout(x, p)
