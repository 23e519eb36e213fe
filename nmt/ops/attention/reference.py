"""Additive attention written with torch operations, and its gradients in the parts that a loop over time needs."""

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


def query_gradient_reference(
    query: Tensor, keys: Tensor, *, values: Tensor, weights: Tensor, weight: Tensor, d_context: Tensor
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.attention.attention_query_gradient`."""
    d_context = d_context.unflatten(-1, (keys.size(1), -1)).transpose(1, 2).to(values.dtype)  # [B, G, Q, M/G]
    d_weights = torch.matmul(d_context, values.transpose(-1, -2)).to(weights.dtype)  # [B, G, Q, S]
    d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True))
    hidden = (query.unsqueeze(3) + keys.unsqueeze(2)).sigmoid_()  # [B, G, Q, S, M/G]
    slopes = hidden * (1 - hidden)
    d_query = torch.matmul(d_scores.to(slopes.dtype).unsqueeze(-2), slopes).squeeze(-2)
    return d_scores, d_query * (2 * weight).to(d_query.dtype)


def memory_gradients_reference(
    query: Tensor,
    keys: Tensor,
    *,
    values: Tensor,
    weights: Tensor,
    weight: Tensor,
    d_scores: Tensor,
    d_context: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `nmt.ops.attention.attention_memory_gradients`."""
    d_keys = torch.zeros_like(keys, dtype=d_scores.dtype)
    d_weight = torch.zeros_like(weight, dtype=d_scores.dtype)
    for one, gradient in zip(query.unbind(2), d_scores.unbind(2), strict=True):  # [B, G, S, M/G] at a time
        hidden = (one.unsqueeze(2) + keys).sigmoid_()
        d_keys += gradient.unsqueeze(-1) * (hidden * (1 - hidden))
        d_weight += torch.einsum("bgs,bgsw->w", gradient, 2 * hidden.to(gradient.dtype) - 1)
    d_keys *= 2 * weight
    return d_keys.to(keys.dtype), values_gradient(values, weights=weights, d_context=d_context), d_weight


def values_gradient(values: Tensor, *, weights: Tensor, d_context: Tensor) -> Tensor:
    """The gradient of values [B, G, S, V], one product for all queries, in their type."""
    d_context = d_context.unflatten(-1, (values.size(1), -1)).transpose(1, 2)  # [B, G, Q, V]
    with torch.autocast(values.device.type, enabled=False):
        return torch.matmul(weights.transpose(-1, -2).to(values.dtype), d_context.to(values.dtype))
