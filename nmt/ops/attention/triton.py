"""Additive attention in Triton: the custom operators around its kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nmt.ops.attention import launches
from nmt.ops.attention.launches import Memory
from nmt.ops.attention.reference import attention_reference
from nmt.ops.dispatch import fall_back
from nmt.ops.triton_tools import readable, readable_rows


def _memory(keys: Tensor, values: Tensor, weight: Tensor) -> Memory:
    return Memory(readable(keys), readable(values), weight.contiguous(), factor=1)


@torch.library.custom_op(
    "nmt::attention",
    mutates_args=(),
    schema="(Tensor query, Tensor keys, Tensor values, Tensor penalty, Tensor weight, Tensor bias) -> (Tensor, Tensor)",
)
def attention_op(
    query: Tensor, keys: Tensor, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Context [B, Q, G * V] in the type of values and weights fp32 [B, G, Q, S].

    query [B, G, Q, W], keys [B, G, S, W], values [B, G, S, V], penalty [B, 1, 1, S], weight [W]. The bias changes
    nothing, but it must get a gradient.
    """
    context, weights = _room(query, keys, values)
    penalty = readable_rows(penalty[:, 0, 0].float())
    memory = _memory(keys, values, weight)
    launches.attend(readable_rows(query), memory, penalty=penalty, context=context, weights=weights)
    return context, weights


def _room(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    batch, heads, queries, _ = query.shape
    context = values.new_empty(batch, queries, heads * values.size(3))
    return context, keys.new_empty(batch, heads, queries, keys.size(2), dtype=torch.float32)


@attention_op.register_fake
def _(
    query: Tensor, keys: Tensor, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    return _room(query, keys, values)


@torch.library.custom_op(
    "nmt::attention_backward",
    mutates_args=(),
    schema="(Tensor query, Tensor keys, Tensor values, Tensor weights, Tensor weight, Tensor d_context,"
    " Tensor? d_weights) -> (Tensor, Tensor, Tensor, Tensor)",
)
def attention_backward_op(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    weights: Tensor,
    weight: Tensor,
    d_context: Tensor,
    d_weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, keys, values, and, fp32, of weight."""
    query, weights, d_context = readable_rows(query), readable_rows(weights), readable_rows(d_context)
    memory = _memory(keys, values, weight)
    d_scores, d_query = weights.new_empty(weights.shape), query.new_empty(query.shape)
    d_weights = None if d_weights is None else d_weights.contiguous()
    launches.query_gradient(
        query, memory, weights=weights, d_context=d_context, d_weights=d_weights, d_scores=d_scores, d_query=d_query
    )
    d_keys, d_weight = launches.memory_gradients(query, memory, d_scores=d_scores)
    d_values = launches.values_gradient(values, weights=weights, d_context=d_context).contiguous()
    return d_query, d_keys, d_values, d_weight


@attention_backward_op.register_fake
def _(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    weights: Tensor,
    weight: Tensor,
    d_context: Tensor,
    d_weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_weight = weight.new_empty(weight.shape, dtype=torch.float32)
    return query.new_empty(query.shape), keys.new_empty(keys.shape), values.new_empty(values.shape), d_weight


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, keys, values, _, weight, bias = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(query, keys, values, weight, bias, *output)


def _backward(ctx: Any, d_context: Tensor | None, d_weights: Tensor | None) -> tuple[Tensor | None, ...]:
    query, keys, values, weight, bias, context, weights = ctx.saved_tensors
    d_context = torch.zeros_like(context) if d_context is None else d_context
    d_query, d_keys, d_values, d_weight = attention_backward_op(
        query, keys, values, weights, weight, d_context, d_weights
    )
    return d_query, d_keys, d_values, None, d_weight.to(weight.dtype), torch.zeros_like(bias)


attention_op.register_autograd(_backward, setup_context=_setup_context)


def unsupported(keys: Tensor) -> str | None:
    """Why the kernels cannot run on keys [B, G, S, W], None if they can."""
    source, most = keys.size(2), launches.MOST_SOURCE
    return f"{source} source positions are more than {most}" if source > most else None


def attention_triton(
    query: Tensor, keys: Tensor, *, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.attention.additive_attention`."""
    problem = unsupported(keys)
    if problem or query.numel() == 0 or keys.numel() == 0:
        run = fall_back("attention", problem, reference=attention_reference) if problem else attention_reference
        return run(query, keys, values=values, penalty=penalty, weight=weight, bias=bias)
    return attention_op(query, keys, values, penalty, weight, bias)
