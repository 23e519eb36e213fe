"""How the Triton kernels of additive attention are launched, into tensors that are already there.

Letters: B sentences, G heads, Q queries of each, S source positions; W the width of keys, V of values in a head.
Tensors can have any strides but that of the last axis, where values lie side by side; keys and values of one head lie
within 32-bit offsets.
Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
import triton
from torch import Tensor

from nmt.ops.attention.kernels import (
    attention_forward_kernel,
    attention_memory_backward_kernel,
    attention_query_backward_kernel,
)

MOST_SOURCE: Final = 1024
"""Source positions a program can hold in registers; more are left to the reference."""

TILE: Final = 8192
"""Values of keys in the registers of a program that reads a whole source row."""

MEMORY_BLOCK_S: Final = 16
MEMORY_BLOCK_W: Final = 64
MEMORY_WARPS: Final = 4


class Memory(NamedTuple):
    """What queries attend to."""

    keys: Tensor
    """[B, G, S, W]"""
    values: Tensor
    """[B, G, S, V]"""
    weight: Tensor
    """[W], contiguous"""
    factor: int
    """1 if queries are doubled as the keys are, see `nmt.ops.attention`; 2 if they are not."""


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


def _row_launch(query: Tensor, memory: Memory) -> tuple[tuple[int], tuple[int, ...], dict[str, int]]:
    """Grid, sizes and constants of a kernel with a program for each query and head."""
    batch, heads, queries, width = query.shape
    source, value = memory.values.shape[2:]
    blocks = block_rule(source, width, value)
    constants = {"FACTOR": memory.factor, "BLOCK_S": blocks.source, "BLOCK_W": blocks.width, "BLOCK_V": blocks.value}
    sizes = (heads, queries, source, width, value)
    return (batch * heads * queries,), sizes, {**constants, "num_warps": blocks.warps}


def attend(query: Tensor, memory: Memory, *, penalty: Tensor, context: Tensor, weights: Tensor) -> None:
    """From query [B, G, Q, W] and penalty fp32 [B, S] to context [B, Q, G * V] and weights fp32 [B, G, Q, S]."""
    grid, sizes, constants = _row_launch(query, memory)
    with torch.cuda.device_of(query):
        attention_forward_kernel[grid](
            query, memory.keys, memory.values, penalty, memory.weight, context, weights,
            *query.stride()[:3], *memory.keys.stride()[:3], *memory.values.stride()[:3], penalty.stride(0),
            *context.stride()[:2], *weights.stride()[:3], *sizes, **constants,
        )  # fmt: skip


def query_gradient(
    query: Tensor, memory: Memory, *, weights: Tensor, d_context: Tensor, d_weights: Tensor | None, d_scores: Tensor,
    d_query: Tensor,
) -> None:  # fmt: skip
    """From the gradients of context and, contiguous or None, weights to those of scores and query."""
    grid, sizes, constants = _row_launch(query, memory)
    with torch.cuda.device_of(query):
        attention_query_backward_kernel[grid](
            query, memory.keys, memory.values, memory.weight, weights, d_context, d_weights, d_scores, d_query,
            *query.stride()[:3], *memory.keys.stride()[:3], *memory.values.stride()[:3], *d_context.stride()[:2],
            *weights.stride()[:3], *d_scores.stride()[:3], *d_query.stride()[:3], *sizes, **constants,
        )  # fmt: skip


def memory_gradients(query: Tensor, memory: Memory, *, d_scores: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of keys, in their type, and of weight, fp32, from all queries; no atomics."""
    keys = memory.keys
    batch, heads, source, width = keys.shape
    blocks = triton.cdiv(source, MEMORY_BLOCK_S)
    d_keys = keys.new_empty(keys.shape)
    d_weight = keys.new_empty(batch * heads, blocks, width, dtype=torch.float32)
    with torch.cuda.device_of(keys):
        attention_memory_backward_kernel[(batch * heads, blocks, triton.cdiv(width, MEMORY_BLOCK_W))](
            query, keys, memory.weight, d_scores, d_keys, d_weight,
            *query.stride()[:3], *keys.stride()[:3], *d_scores.stride()[:3], heads, query.size(2), source, width,
            FACTOR=memory.factor, BLOCK_S=MEMORY_BLOCK_S, BLOCK_W=MEMORY_BLOCK_W, num_warps=MEMORY_WARPS,
        )  # fmt: skip
    return d_keys, d_weight.sum((0, 1))


def values_gradient(values: Tensor, *, weights: Tensor, d_context: Tensor) -> Tensor:
    """The gradient of values, in their type, from all queries: one product."""
    d_context = d_context.unflatten(-1, (values.size(1), -1)).transpose(1, 2)  # [B, G, Q, V]
    with torch.autocast(values.device.type, enabled=False):
        return torch.matmul(weights.transpose(-1, -2).to(values.dtype), d_context.to(values.dtype))
