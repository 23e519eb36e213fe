"""Layer normalisation as Zero computes it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-8


def layer_norm(x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """scale * (x - mean) / sqrt(variance + 1e-8) + offset over the last axis (Ba et al. 2016).

    x [..., N], scale and offset [N]. The variance is the population variance. Computed and returned
    in at least fp32, because 1e-8 has no effect in bf16.
    """
    dtype = torch.promote_types(scale.dtype, torch.float32)
    return F.layer_norm(x.to(dtype), scale.shape, scale.to(dtype), offset.to(dtype), EPSILON)


def layer_norm_parts(x: Tensor, scale: Tensor, offset: Tensor, *, widths: Sequence[int]) -> Tensor:
    """Normalise consecutive parts of x [..., N] separately; their `widths` add up to N."""
    if len(widths) == 1:
        return layer_norm(x, scale, offset)
    parts = zip(*(torch.split(tensor, list(widths), -1) for tensor in (x, scale, offset)), strict=True)
    return torch.cat([layer_norm(*part) for part in parts], -1)
