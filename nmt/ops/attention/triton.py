"""The Triton kernels of additive attention: no tensor of size queries x source x width is ever stored.

The forward pass and the gradients of the query run in a loop over target positions: a program has one query of one
head and the whole source row; FACTOR times the query is added to the keys. The gradients of keys and weight are
sums over all queries: they are computed once, after the loop, by programs that keep their part of the keys in
registers and iterate over the queries.

B sentences, G heads, Q queries of each sentence in rows N = B * Q, S source positions; W and V are the widths of keys
and values in a head. Heads lie side by side in a row: query [N, G * W], context [N, G * V], weights [N, G * S].
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.attention import attention_reference
from nmt.ops.dispatch import no_kernel
from nmt.ops.recurrence import readable_rows
from nmt.ops.triton_tools import LOG2_E, load_row, readable, sigmoid, store_row


# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes
@triton.jit
def _own(G, Q):
    """Sentence, head and row of this program; the queries of a sentence are side by side and share the caches."""
    i_b = tl.program_id(0) // (Q * G)
    i_row = i_b * Q + tl.program_id(0) % Q
    return i_b.to(tl.int64), (tl.program_id(0) // Q) % G, i_row.to(tl.int64)


@triton.jit
def _tile(p, s, S, step, o, width):
    """Rows s, `step` apart, and columns o, fp32; zeros beyond S and width."""
    within = (s < S)[:, None] & (o < width)[None, :]
    return tl.load(p + s[:, None] * step + o[None, :], mask=within, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["Q", "S", "sp", "sa"])
def attention_forward_kernel(
    p_query, p_keys, p_values, p_penalty, p_weight, p_context, p_weights,
    sq, sk_b, sk_g, sk_s, sv_b, sv_g, sv_s, sp, sc, sa, G, Q, S, W, V,
    FACTOR: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """From query, keys [B, G, S, W], values [B, G, S, V], penalty [B, S] to context and weights; grid (B * G * Q)."""
    i_b, i_g, i_row = _own(G, Q)
    s = tl.arange(0, BLOCK_S)
    p_query += i_row * sq + i_g * W
    p_keys += i_b * sk_b + i_g * sk_g
    p_values += i_b * sv_b + i_g * sv_g
    p_context += i_row * sc + i_g * V
    score = tl.load(p_penalty + i_b * sp + s, mask=s < S, other=float("-inf"))
    for w0 in tl.range(0, W, BLOCK_W, num_stages=3):
        w = w0 + tl.arange(0, BLOCK_W)
        query = FACTOR * load_row(p_query, w, W)
        weight = 2.0 * load_row(p_weight, w, W)
        keys = _tile(p_keys, s, S, sk_s, w, W)
        score += tl.sum(sigmoid(keys + query[None, :]) * weight[None, :], 1)
    weights = tl.exp2((score - tl.max(score, 0)) * LOG2_E)
    weights = weights / tl.sum(weights, 0)
    store_row(p_weights + i_row * sa + i_g * S, weights, s, S)
    for v0 in tl.range(0, V, BLOCK_V, num_stages=3):
        v = v0 + tl.arange(0, BLOCK_V)
        store_row(p_context, tl.sum(weights[:, None] * _tile(p_values, s, S, sv_s, v, V), 0), v, V)


@triton.jit(do_not_specialize=["Q", "S", "sa", "sd"])
def attention_query_backward_kernel(
    p_query, p_keys, p_values, p_weight, p_weights, p_dcontext, p_dweights, p_dscores, p_dquery,
    sq, sk_b, sk_g, sk_s, sv_b, sv_g, sv_s, sc, sa, sd, sdq, G, Q, S, W, V,
    FACTOR: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Gradients of scores, as the weights, and query; dweights, contiguous, may be None. Grid as forward."""
    i_b, i_g, i_row = _own(G, Q)
    s = tl.arange(0, BLOCK_S)
    p_query += i_row * sq + i_g * W
    p_dquery += i_row * sdq + i_g * W
    p_keys += i_b * sk_b + i_g * sk_g
    p_values += i_b * sv_b + i_g * sv_g
    p_dcontext += i_row * sc + i_g * V
    if p_dweights is None:
        d_weights = tl.zeros([BLOCK_S], tl.float32)
    else:
        d_weights = load_row(p_dweights + (i_row * G + i_g) * S, s, S)
    for v0 in tl.range(0, V, BLOCK_V, num_stages=3):
        v = v0 + tl.arange(0, BLOCK_V)
        d_weights += tl.sum(_tile(p_values, s, S, sv_s, v, V) * load_row(p_dcontext, v, V)[None, :], 1)
    weights = load_row(p_weights + i_row * sa + i_g * S, s, S)
    d_scores = weights * (d_weights - tl.sum(weights * d_weights, 0))
    store_row(p_dscores + i_row * sd + i_g * S, d_scores, s, S)
    for w0 in tl.range(0, W, BLOCK_W, num_stages=3):
        w = w0 + tl.arange(0, BLOCK_W)
        query = FACTOR * load_row(p_query, w, W)
        weight = 2.0 * load_row(p_weight, w, W)
        hidden = sigmoid(_tile(p_keys, s, S, sk_s, w, W) + query[None, :])
        d_query = tl.sum(d_scores[:, None] * (hidden * (1.0 - hidden)), 0) * weight * FACTOR
        store_row(p_dquery, d_query, w, W)


@triton.jit(do_not_specialize=["Q", "S", "sa_b", "sa_q"])
def attention_memory_backward_kernel(
    p_query, p_keys, p_weight, p_dscores, p_dkeys, p_dweight,
    sq_q, sq_b, sk_b, sk_g, sk_s, sa_q, sa_b, G, Q, S, W,
    FACTOR: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Over all queries, gradients of the keys, contiguous, and parts [B * G, blocks of S, W] of the weight's gradient;
    query [Q, B, G * W], dscores [Q, B, G * S]; grid (B * G, blocks of S, blocks of W)."""
    i_g = tl.program_id(0) % G
    i_b = (tl.program_id(0) // G).to(tl.int64)
    s = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    w = tl.program_id(2) * BLOCK_W + tl.arange(0, BLOCK_W)
    p_query += i_b * sq_b + i_g * W
    p_dscores += i_b * sa_b + i_g * S
    sq_q = tl.cast(sq_q, tl.int64)  # after a loop over time a query's stride is a whole batch
    sa_q = tl.cast(sa_q, tl.int64)
    keys = _tile(p_keys + i_b * sk_b + i_g * sk_g, s, S, sk_s, w, W)
    d_keys = tl.zeros([BLOCK_S, BLOCK_W], tl.float32)
    d_weight = tl.zeros([BLOCK_S, BLOCK_W], tl.float32)
    for i_q in tl.range(0, Q, num_stages=4):
        query = FACTOR * load_row(p_query + i_q * sq_q, w, W)
        d_scores = load_row(p_dscores + i_q * sa_q, s, S)
        hidden = sigmoid(keys + query[None, :])
        d_keys += d_scores[:, None] * (hidden * (1.0 - hidden))
        d_weight += d_scores[:, None] * (2.0 * hidden - 1.0)  # the scores' gradients of a query sum to zero
    weight = 2.0 * load_row(p_weight, w, W)
    i_row = tl.program_id(0).to(tl.int64)
    p = p_dkeys + (i_row * S + s[:, None]) * W + w[None, :]
    tl.store(p, (d_keys * weight[None, :]).to(p_dkeys.dtype.element_ty), mask=(s < S)[:, None] & (w < W)[None, :])
    store_row(p_dweight + (i_row * tl.num_programs(1) + tl.program_id(1)) * W, tl.sum(d_weight, 0), w, W)


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
    """As `nmt.ops.attention.AttentionKernel`, but with values [B, G, S, V] and contexts [N, G * V] of another width.

    The queries may be doubled, too. All results are written to tensors of the caller, who keeps the steps of a sequence
    in [T, N, ...]. Tensors can have any strides except on the last axis, where values must be side by side; keys and
    values of one head must be within 32-bit offsets.
    """

    takes_wide_values: ClassVar[bool] = True

    def __init__(self, keys: Tensor, values: Tensor, *, penalty: Tensor, weight: Tensor, doubled: bool = False) -> None:
        self.keys, self.values, self.weight = readable(keys), readable(values), weight.contiguous()
        self.penalty, self._factor = readable_rows(penalty), 1 if doubled else 2

    @classmethod
    def for_levels(
        cls, keys: Tensor, values: Tensor, *, penalty: Tensor, weights: Sequence[Tensor]
    ) -> list[AttentionKernel]:
        return [cls(keys, values, penalty=penalty, weight=weight) for weight in weights]

    @staticmethod
    def problem(keys: Tensor) -> str | None:
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
