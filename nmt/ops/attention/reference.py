"""Additive attention written with torch operations."""

from __future__ import annotations

import torch
from torch import Tensor


def attention_reference(
    query: Tensor, keys: Tensor, *, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.attention.additive_attention`."""
    hidden = (query.unsqueeze(3) + keys.unsqueeze(2)).sigmoid_()  # [B, G, Q, S, M/G]
    scores = torch.matmul(hidden, (2 * weight).to(hidden.dtype))  # [B, G, Q, S]
    scores = scores.to(penalty.dtype) + bias + penalty
    weights = torch.softmax(scores, dim=-1)
    context = torch.matmul(weights.to(values.dtype), values)  # [B, G, Q, M/G]
    return context.transpose(1, 2).flatten(2), weights
