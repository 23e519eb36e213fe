"""Dropout masks with the C kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.dropout.draws import Draw
from nmt.ops.dropout.reference import threshold
from nmt.ops.native import kernel


def dropout_native(x: Tensor, p: float, draw: Draw) -> Tensor:
    """See `nmt.ops.dropout.reference.reference_dropout`; x [N, W] in fp32 or bf16 on a CPU, no gradient."""
    x = x.contiguous()
    out = torch.empty_like(x)
    places = None if draw.places is None else draw.places.contiguous()
    run = kernel("dropout", x.dtype)
    run(x, out, places, *x.shape, draw.key, draw.layer, threshold(p), 1 / (1 - p))
    return out
