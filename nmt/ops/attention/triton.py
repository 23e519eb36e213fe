"""Additive attention in Triton: how its kernels are launched, and the custom operators around them."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
import triton
from torch import Tensor

from nmt.ops.attention.kernels import (
    attention_forward_kernel,
    attention_memory_backward_kernel,
    attention_query_backward_kernel,
)
from nmt.ops.attention.reference import (
    attention_reference,
    memory_gradients_reference,
    query_gradient_reference,
    values_gradient,
)
from nmt.ops.dispatch import fall_back

MOST_SOURCE: Final = 1024
"""Source positions a program can hold in registers; more are left to the reference."""

TILE: Final = 8192
"""Values of keys in the registers of a program that reads a whole source row."""

MEMORY_BLOCK_S: Final = 16
MEMORY_BLOCK_W: Final = 64
MEMORY_WARPS: Final = 4


class Blocks(NamedTuple):
    """How a program that reads a whole source row cuts it; all but the warps are powers of two."""

    source: int
    width: int
    value: int
    warps: int


def block_rule(source: int, width: int, value: int) -> Blocks:
    """The blocks for `source` positions of keys `width` and values `value` wide; see `scripts/compile_kernels`."""
    block = max(16, triton.next_power_of_2(source))
    chunk = max(8, TILE // block)
    columns, value_columns = (min(triton.next_power_of_2(size), chunk) for size in (width, value))
    return Blocks(block, columns, value_columns, warps=8)


def readable_rows(x: Tensor) -> Tensor:
    """x itself if values of its last axis lie side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _shape(query: Tensor, keys: Tensor, values: Tensor) -> tuple[int, int, int, int, int, int]:
    """B, G, Q, S, W, V."""
    return (*query.shape[:3], keys.size(2), keys.size(3), values.size(3))


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
    query, keys, values = readable_rows(query), readable_rows(keys), readable_rows(values)
    penalty = readable_rows(penalty.float())
    batch, heads, queries, source, width, value = _shape(query, keys, values)
    context, weights = _room(query, keys, values)
    blocks = block_rule(source, width, value)
    with torch.cuda.device_of(keys):
        attention_forward_kernel[(batch * heads * queries,)](
            query, keys, values, penalty, weight.contiguous(), context, weights,
            *query.stride()[:3], *keys.stride()[:3], *values.stride()[:3], penalty.stride(0),
            *context.stride()[:2], *weights.stride()[:3],
            heads, queries, source, width, value,
            BLOCK_S=blocks.source, BLOCK_W=blocks.width, BLOCK_V=blocks.value, num_warps=blocks.warps,
        )  # fmt: skip
    return context, weights


def _room(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    batch, heads, queries, source, _, value = _shape(query, keys, values)
    context = values.new_empty(batch, queries, heads * value)
    return context, keys.new_empty(batch, heads, queries, source, dtype=torch.float32)


@attention_op.register_fake
def _(
    query: Tensor, keys: Tensor, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    return _room(query, keys, values)


@torch.library.custom_op(
    "nmt::attention_query_backward",
    mutates_args=(),
    schema="(Tensor query, Tensor keys, Tensor values, Tensor weights, Tensor weight, Tensor d_context,"
    " Tensor? d_weights) -> (Tensor, Tensor)",
)
def attention_query_backward_op(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    weights: Tensor,
    weight: Tensor,
    d_context: Tensor,
    d_weights: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Gradients of the scores, fp32 [B, G, Q, S], and of the query, in its type; d_weights fp32 or None."""
    query, keys, values = readable_rows(query), readable_rows(keys), readable_rows(values)
    weights, d_context = readable_rows(weights), readable_rows(d_context)
    batch, heads, queries, source, width, value = _shape(query, keys, values)
    d_scores, d_query = torch.empty_like(weights), query.new_empty(query.shape)
    blocks = block_rule(source, width, value)
    with torch.cuda.device_of(keys):
        attention_query_backward_kernel[(batch * heads * queries,)](
            query, keys, values, weight.contiguous(), weights, d_context,
            None if d_weights is None else d_weights.contiguous(), d_scores, d_query,
            *query.stride()[:3], *keys.stride()[:3], *values.stride()[:3], *d_context.stride()[:2],
            *weights.stride()[:3], *d_scores.stride()[:3], *d_query.stride()[:3],
            heads, queries, source, width, value,
            BLOCK_S=blocks.source, BLOCK_W=blocks.width, BLOCK_V=blocks.value, num_warps=blocks.warps,
        )  # fmt: skip
    return d_scores, d_query


@attention_query_backward_op.register_fake
def _(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    weights: Tensor,
    weight: Tensor,
    d_context: Tensor,
    d_weights: Tensor | None,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(readable_rows(weights)), query.new_empty(query.shape)


@torch.library.custom_op("nmt::attention_memory_backward", mutates_args=())
def attention_memory_backward_op(
    query: Tensor, keys: Tensor, weight: Tensor, d_scores: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of keys [B, G, S, W], in their type, and of weight fp32 [W] from all Q queries; no atomics."""
    query, keys, d_scores = readable_rows(query), readable_rows(keys), readable_rows(d_scores)
    batch, heads, source, width = keys.shape
    blocks = triton.cdiv(source, MEMORY_BLOCK_S)
    d_keys = keys.new_empty(keys.shape)
    d_weight = keys.new_empty(batch * heads, blocks, width, dtype=torch.float32)
    with torch.cuda.device_of(keys):
        attention_memory_backward_kernel[(batch * heads, blocks, triton.cdiv(width, MEMORY_BLOCK_W))](
            query, keys, weight.contiguous(), d_scores, d_keys, d_weight,
            *query.stride()[:3], *keys.stride()[:3], *d_scores.stride()[:3],
            heads, query.size(2), source, width,
            BLOCK_S=MEMORY_BLOCK_S, BLOCK_W=MEMORY_BLOCK_W, num_warps=MEMORY_WARPS,
        )  # fmt: skip
    return d_keys, d_weight.sum((0, 1))


@attention_memory_backward_op.register_fake
def _(query: Tensor, keys: Tensor, weight: Tensor, d_scores: Tensor) -> tuple[Tensor, Tensor]:
    return keys.new_empty(keys.shape), weight.new_empty(weight.shape, dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, keys, values, _, weight, bias = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(query, keys, values, weight, bias, output[1])


def _backward(ctx: Any, d_context: Tensor | None, d_weights: Tensor | None) -> tuple[Tensor | None, ...]:
    query, keys, values, weight, bias, weights = ctx.saved_tensors
    if d_context is None:
        d_context = values.new_zeros(query.size(0), query.size(2), values.size(1) * values.size(3))
    d_scores, d_query = attention_query_backward_op(query, keys, values, weights, weight, d_context, d_weights)
    d_keys, d_weight = attention_memory_backward_op(query, keys, weight, d_scores)
    d_values = values_gradient(values, weights=weights, d_context=d_context)
    return d_query, d_keys, d_values, None, d_weight.to(weight.dtype), torch.zeros_like(bias)


attention_op.register_autograd(_backward, setup_context=_setup_context)


def unsupported(keys: Tensor) -> str | None:
    """Why the kernels cannot run on keys [B, G, S, W], None if they can."""
    source = keys.size(2)
    return f"{source} source positions are more than {MOST_SOURCE}" if source > MOST_SOURCE else None


def attention_triton(
    query: Tensor, keys: Tensor, *, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.attention.additive_attention`."""
    problem = unsupported(keys)
    if problem or query.numel() == 0 or keys.numel() == 0:
        run = fall_back("attention", problem, reference=attention_reference) if problem else attention_reference
        return run(query, keys, values=values, penalty=penalty, weight=weight, bias=bias)
    return attention_op(query, keys, values, penalty, weight, bias)


def attention_query_gradient_triton(
    query: Tensor, keys: Tensor, *, values: Tensor, weights: Tensor, weight: Tensor, d_context: Tensor
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.attention.attention_query_gradient`."""
    if unsupported(keys) or query.numel() == 0 or keys.numel() == 0:
        run = query_gradient_reference
        return run(query, keys, values=values, weights=weights, weight=weight, d_context=d_context)
    return attention_query_backward_op(query, keys, values, weights, weight, d_context, None)


def attention_memory_gradients_triton(
    query: Tensor,
    keys: Tensor,
    *,
    values: Tensor,
    weights: Tensor,
    weight: Tensor,
    d_scores: Tensor,
    d_context: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `nmt.ops.attention.attention_memory_gradients`; the source may be of any length."""
    if query.numel() == 0 or keys.numel() == 0:
        run = memory_gradients_reference
        return run(query, keys, values=values, weights=weights, weight=weight, d_scores=d_scores, d_context=d_context)
    d_keys, d_weight = attention_memory_backward_op(query, keys, weight, d_scores)
    return d_keys, values_gradient(values, weights=weights, d_context=d_context), d_weight
