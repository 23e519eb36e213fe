"""Scaled dot-product attention in several heads, in the form used by the steps of a search."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.dispatch import use_native
from nmt.ops.native import kernel
from nmt.ops.recurrence import at_least_fp32, readable_rows


def attend(query: Tensor, keys: Tensor, values: Tensor, *, penalty: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(q k' / sqrt(D) + penalty) v (Vaswani et al., NIPS 2017) and the weights.

    query [B, Q, G * D]; keys and values [B, G, S, D] of its type; penalty [B, 1, 1, S], where values below -1e7 give a
    weight of 0 if another position has no such value. Returns the weighted sums of values [B, Q, G * D], in
    their type, and the weights [B, G, Q, S] in at least fp32. On a CPU without gradients a C kernel computes them.
    """
    if not torch.is_grad_enabled() and use_native(keys):
        return _native(query, keys, values, penalty=penalty)
    rows = query.unflatten(-1, (keys.size(1), -1)).transpose(1, 2)  # [B, G, Q, D]
    scores = at_least_fp32(rows @ keys.transpose(2, 3)) * keys.size(3) ** -0.5 + penalty
    weights = scores.softmax(-1)
    return (weights.to(values.dtype) @ values).transpose(1, 2).flatten(2), weights


def _native(query: Tensor, keys: Tensor, values: Tensor, *, penalty: Tensor) -> tuple[Tensor, Tensor]:
    sentences, heads, positions, width = keys.shape
    rows = readable_rows(query.flatten(0, 1))
    found = torch.empty(len(rows), heads * width, dtype=keys.dtype)
    weights = torch.empty(len(rows), heads, positions, dtype=torch.float32)
    kernel("dot_attention", keys.dtype)(
        *(rows, rows.stride(0), keys.contiguous(), values.contiguous(), penalty[:, 0, 0].float().contiguous()),
        *(width**-0.5, weights, found, len(rows), query.size(1), heads, positions, width),
    )
    return found.unflatten(0, (sentences, -1)), weights.unflatten(0, (sentences, -1)).transpose(1, 2)
