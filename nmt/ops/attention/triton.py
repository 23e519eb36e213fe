"""Additive attention in Triton: without autograd, for loops over target positions, and with autograd."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.attention import attention_reference
from nmt.ops.attention.kernels import (
    attention_forward_kernel,
    attention_memory_backward_kernel,
    attention_query_backward_kernel,
)
from nmt.ops.dispatch import no_kernel
from nmt.ops.recurrence import readable_rows
from nmt.ops.triton_tools import readable

MOST_SOURCE: Final = 1024
"""Most source positions that a program can keep in registers; longer sources use the reference."""

TILE: Final = 8192
"""Values of keys in the registers of a program that reads a whole source row."""

WARPS: Final = 8

MEMORY_BLOCKS: Final = MappingProxyType({"BLOCK_S": 16, "BLOCK_W": 64})
MEMORY_WARPS: Final = 4
"""Warps of the programs that have a part of the keys."""


def block_rule(source: int, width: int, value: int) -> dict[str, int]:
    """How a program splits its row of `source` positions; keys have width `width`, values width `value`."""
    block = max(16, triton.next_power_of_2(source))
    chunk = max(8, TILE // block)
    columns, value_columns = (min(triton.next_power_of_2(size), chunk) for size in (width, value))
    return {"BLOCK_S": block, "BLOCK_W": columns, "BLOCK_V": value_columns}


class AttentionKernel:
    """Attention over one memory of B sentences in G heads: keys [B, G, S, W], values [B, G, S, V], penalty [B, S] fp32.

    The keys are doubled, see `nmt.ops.attention`; the queries only with `doubled`. `weight` [W]. Queries are
    [N, G * W] and contexts [N, G * V], N = B * Q rows, sentence-major; weights and the gradients of the scores
    [N, G, S] fp32. All results are written to tensors of the caller, who keeps the steps of a sequence in [T, N, ...].
    Tensors can have any strides except on the last axis, where values must be side by side; keys and values of one
    head must be within 32-bit offsets.
    """

    takes_wide_values: ClassVar[bool] = True
    """Whether values may be wider than keys."""

    def __init__(self, keys: Tensor, values: Tensor, *, penalty: Tensor, weight: Tensor, doubled: bool = False) -> None:
        self.keys, self.values, self.weight = readable(keys), readable(values), weight.contiguous()
        self.penalty, self._factor = readable_rows(penalty), 1 if doubled else 2

    @classmethod
    def for_levels(
        cls, keys: Tensor, values: Tensor, *, penalty: Tensor, weights: Sequence[Tensor]
    ) -> list[AttentionKernel]:
        """One attention for each of several weights, over the same memory."""
        return [cls(keys, values, penalty=penalty, weight=weight) for weight in weights]

    @staticmethod
    def problem(keys: Tensor) -> str | None:
        """Why it cannot attend to these keys, None if it can."""
        source, most = keys.size(2), MOST_SOURCE
        return f"{source} source positions are more than {most}" if source > most else None

    def _run(self, kernel: Any, rows: int, tensors: Sequence[Tensor | None], strides: Sequence[int]) -> None:
        """Launch a kernel with one program for each of `rows` queries and each head."""
        (batch, heads, source, width), value = self.keys.shape, self.values.size(3)
        with torch.cuda.device_of(self.keys):
            kernel[(heads * rows,)](
                *tensors, *strides, heads, rows // batch, source, width, value,
                FACTOR=self._factor, num_warps=WARPS, **block_rule(source, width, value),
            )  # fmt: skip

    def forward(self, query: Tensor, *, weights: Tensor, context: Tensor) -> None:
        """Write the weights and the context of `query`."""
        self._run(
            attention_forward_kernel, len(query),
            (query, self.keys, self.values, self.penalty, self.weight, context, weights),
            (query.stride(0), *self.keys.stride()[:3], *self.values.stride()[:3], self.penalty.stride(0),
             context.stride(0), weights.stride(0)),
        )  # fmt: skip

    def query_gradient(
        self, query: Tensor, *, weights: Tensor, d_context: Tensor, d_scores: Tensor, d_query: Tensor,
        d_weights: Tensor | None = None,
    ) -> None:  # fmt: skip
        """From d_context and, if given, d_weights, contiguous, write d_query, and d_scores in the form for
        `memory_gradients`."""
        self._run(
            attention_query_backward_kernel, len(query),
            (query, self.keys, self.values, self.weight, weights, d_context, d_weights, d_scores, d_query),
            (query.stride(0), *self.keys.stride()[:3], *self.values.stride()[:3], d_context.stride(0),
             weights.stride(0), d_scores.stride(0), d_query.stride(0)),
        )  # fmt: skip

    def memory_gradients(
        self, queries: Tensor, *, weights: Tensor, d_scores: Tensor, d_contexts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of keys and values, in their type, and of `weight`, fp32, from all T steps with one query per
        sentence; without atomics.

        Time first: queries [T, B, G * W], d_contexts [T, B, G * V], weights and d_scores [T, B, G, S].
        """
        batch, heads, source, width = self.keys.shape
        blocks = triton.cdiv(source, MEMORY_BLOCKS["BLOCK_S"])
        d_keys = self.keys.new_empty(self.keys.shape)
        d_weight = self.keys.new_empty(batch * heads, blocks, width, dtype=torch.float32)
        with torch.cuda.device_of(self.keys), torch.autocast(self.keys.device.type, enabled=False):
            attention_memory_backward_kernel[(batch * heads, blocks, triton.cdiv(width, MEMORY_BLOCKS["BLOCK_W"]))](
                queries, self.keys, self.weight, d_scores, d_keys, d_weight, *queries.stride()[:2],
                *self.keys.stride()[:3], *d_scores.stride()[:2], heads, len(queries), source, width,
                FACTOR=self._factor, num_warps=MEMORY_WARPS, **MEMORY_BLOCKS,
            )  # fmt: skip
            d_contexts = d_contexts.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)  # [B, G, T, V]
            dtype = self.values.dtype
            d_values = torch.matmul(weights.permute(1, 2, 3, 0).to(dtype), d_contexts.to(dtype))
        return d_keys, d_values, d_weight.sum((0, 1))


class Attention(torch.autograd.Function):
    """Context and weights as `nmt.ops.attention.additive_attention` returns them."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The bias has no effect on the result, but it needs a gradient."""
        batch, heads, queries, _ = query.shape
        penalty, rows = penalty[:, 0, 0].float(), query.transpose(1, 2).flatten(2).flatten(0, 1)
        context = values.new_empty(batch, queries, heads * values.size(3))
        weights = keys.new_empty(batch, queries, heads, keys.size(2), dtype=torch.float32)
        kernel = AttentionKernel(keys, values, penalty=penalty, weight=weight, doubled=True)
        kernel.forward(rows, weights=weights.flatten(0, 1), context=context.flatten(0, 1))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(rows, weights, keys, values, penalty, weight, bias)
        return context, weights.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_context: Tensor | None, d_weights: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of all inputs except the penalty."""
        rows, weights, keys, values, penalty, weight, bias = ctx.saved_tensors
        kernel = AttentionKernel(keys, values, penalty=penalty, weight=weight, doubled=True)
        batch, queries, heads, _ = weights.shape
        if d_context is None:
            d_context = values.new_zeros(batch, queries, heads * values.size(3))
        d_context, d_scores, d_query = d_context.contiguous(), torch.empty_like(weights), torch.empty_like(rows)
        kernel.query_gradient(
            rows, weights=weights.flatten(0, 1), d_context=d_context.flatten(0, 1), d_scores=d_scores.flatten(0, 1),
            d_query=d_query, d_weights=None if d_weights is None else d_weights.transpose(1, 2).contiguous(),
        )  # fmt: skip
        d_keys, d_values, d_weight = kernel.memory_gradients(
            rows.unflatten(0, (batch, -1)).transpose(0, 1), weights=weights.transpose(0, 1),
            d_scores=d_scores.transpose(0, 1), d_contexts=d_context.transpose(0, 1),
        )  # fmt: skip
        d_query = d_query.view(batch, queries, heads, -1).transpose(1, 2)
        return d_query, d_keys, d_values, None, d_weight.to(weight.dtype), torch.zeros_like(bias)


def attention_triton(
    query: Tensor, keys: Tensor, *, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.attention.additive_attention`."""
    problem = AttentionKernel.problem(keys)
    if problem or query.numel() == 0 or keys.numel() == 0:
        if problem:
            no_kernel("attention", like=query, problem=problem)
        return attention_reference(query, keys, values=values, penalty=penalty, weight=weight, bias=bias)
    context, weights = Attention.apply(query, keys, values, penalty, weight, bias)
    return context, weights
