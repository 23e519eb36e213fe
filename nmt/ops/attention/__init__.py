"""Attention to a source that is prepared once: additive, by C and Triton kernels, and the dot product of searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.dispatch import choose, use_native
from nmt.ops.native import kernel
from nmt.ops.recurrence import at_least_fp32, readable_rows


def additive_attention(
    query: Tensor, keys: Tensor, *, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Attend to S source positions from Q queries of each sentence (Bahdanau et al., ICLR 2015).

        e_j = w . tanh(q + k_j) + b + penalty_j;  a = softmax(e);  context = sum_j a_j values_j

    `query` and `keys` are 2q and 2k, because tanh(x) = 2 sigmoid(2x) - 1: on a CPU a sigmoid takes a
    tenth of the time of a tanh, this is the most expensive line of a decoder step, and the constant
    -sum(w) does not change the softmax.

    Shapes: B sentences, G heads of width M/G. `query` [B, G, Q, M/G]; `keys` and `values`
    [B, G, S, M/G]; `penalty` [B, 1, 1, S] is 0 at words and very low at padding; `weight` [M/G] and
    `bias` [1] are shared by the heads. The Q queries of a sentence read the same keys and values,
    which are never copied.

    Returns the context [B, Q, M], heads side by side, and the weights a [B, G, Q, S] in the type of
    `penalty` (fp32, or fp64). The kernel gives `penalty` no gradient.
    """
    run = choose("attention", attention_reference, like=keys, triton="nmt.ops.attention.triton:attention_triton")
    return run(query, keys, values=values, penalty=penalty, weight=weight, bias=bias)


def attention_reference(
    query: Tensor, keys: Tensor, *, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """See `additive_attention`, in torch operations."""
    hidden = (query.unsqueeze(3) + keys.unsqueeze(2)).sigmoid_()  # [B, G, Q, S, M/G]
    scores = torch.matmul(hidden, (2 * weight).to(hidden.dtype))  # [B, G, Q, S]
    scores = scores.to(penalty.dtype) + bias + penalty
    weights = torch.softmax(scores, dim=-1)
    context = torch.matmul(weights.to(values.dtype), values)  # [B, G, Q, M/G]
    return context.transpose(1, 2).flatten(2), weights


LARGEST = 70.0
"""For doubled queries larger than this, powers are not used, see native.c."""


def powers_of(x: Tensor, *, scale: float = 1.0) -> Tensor:
    """e^-(scale x) in fp32, contiguous; with powers of keys, the sigmoids of all queries are cheap, see native.c."""
    x = x.detach().contiguous()
    powers = torch.empty(x.shape, dtype=torch.float32)
    kernel("attention_powers", x.dtype)(x, scale, powers, x.numel())
    return powers


def attend_native(
    query: Tensor, keys: Tensor, *, powers: Tensor, values: Tensor, penalty: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Context [B, Q, M] and weights [B, G, Q, S] of queries [B, Q, M], which are not doubled; without gradients.

    `powers` are `powers_of` the keys. The other arguments are as in `additive_attention`, without the bias, which does
    not change the softmax.
    """
    (sentences, heads, positions, width), queries = keys.shape, query.size(1)
    rows = query.to(keys.dtype).flatten(0, 1).contiguous()
    context = torch.empty_like(rows)
    weights = torch.empty(len(rows), heads, positions, dtype=torch.float32)
    kernel("attention_forward", keys.dtype)(
        *(rows, rows.stride(0), keys.contiguous(), powers.contiguous(), values.contiguous()),
        *(penalty[:, 0, 0].float().contiguous(), weight.float().contiguous(), weights, weights.stride(0)),
        *(context, context.stride(0), len(rows), queries, heads, positions, width),
    )
    return context.unflatten(0, (sentences, queries)), weights.unflatten(0, (sentences, queries)).transpose(1, 2)


class AttentionKernel:
    """Attention over one memory of B sentences in G heads: keys and values [B, G, S, D], penalty [B, S] fp32.

    `powers` are `powers_of` the keys. The keys are doubled, see `additive_attention`; the queries are not. `weight` [D]
    fp32. Queries and contexts are [N, G * D], N = B * Q rows, sentence-major; weights and the gradients of the scores
    [N, G, S] fp32.
    """

    takes_wide_values: ClassVar[bool] = False
    """Whether values may be wider than keys."""

    @classmethod
    def for_levels(
        cls, keys: Tensor, values: Tensor, *, penalty: Tensor, weights: Sequence[Tensor]
    ) -> list[AttentionKernel]:
        """One attention for each of several weights, over the same memory."""
        powers = powers_of(keys)
        return [cls(keys, values, powers=powers, penalty=penalty, weight=weight) for weight in weights]

    @staticmethod
    def problem(keys: Tensor) -> str | None:
        """Why it cannot attend to these keys, None if it can."""
        return None

    def __init__(self, keys: Tensor, values: Tensor, *, powers: Tensor, penalty: Tensor, weight: Tensor) -> None:
        self.keys, self.powers, self.values = keys.contiguous(), powers.contiguous(), values.contiguous()
        self.penalty, self.weight = penalty.contiguous(), weight.contiguous()
        self.sentences, self.heads, self.positions, self.width = keys.shape
        self.dtype = keys.dtype

    def forward(self, query: Tensor, *, weights: Tensor, context: Tensor) -> None:
        """Write the weights and the context of `query`."""
        kernel("attention_forward", self.dtype)(
            *(query, query.stride(0), self.keys, self.powers, self.values, self.penalty, self.weight),
            *(weights, weights.stride(0), context, context.stride(0)),
            *(len(query), len(query) // self.sentences, self.heads, self.positions, self.width),
        )

    def query_gradient(
        self,
        query: Tensor,
        *,
        weights: Tensor,
        d_context: Tensor,
        d_scores: Tensor,
        d_query: Tensor,
        d_weights: Tensor | None = None,
    ) -> None:
        """From d_context and, if given, d_weights, contiguous, write d_query, and d_scores in the form for
        `memory_gradients` (strides of `weights`)."""
        kernel("attention_query", self.dtype)(
            *(query, query.stride(0), self.keys, self.powers, self.values, self.weight, weights, weights.stride(0)),
            *(d_context, d_context.stride(0), d_weights, d_scores, d_query, d_query.stride(0)),
            *(len(query), len(query) // self.sentences, self.heads, self.positions, self.width),
        )

    def memory_gradients(
        self, queries: Tensor, *, weights: Tensor, d_scores: Tensor, d_contexts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of keys, values and `weight`, from all T steps with one query per sentence.

        Time first: queries and d_contexts [T, B, G * D], weights and d_scores [T, B, G, S].
        """
        d_keys, d_values = torch.empty_like(self.keys), torch.empty_like(self.values)
        d_weight = torch.empty(self.sentences, self.width, dtype=torch.float32)
        queries = queries.contiguous()
        small = all(abs(float(end)) <= LARGEST / 2 for end in torch.aminmax(queries)) if queries.numel() else True
        kernel("attention_memory", self.dtype)(
            *(queries, powers_of(queries, scale=2.0), queries.stride(1), queries.stride(0)),
            *(self.keys, self.powers, small, self.weight),
            *(weights, d_scores, weights.stride(1), weights.stride(0)),
            *(d_contexts, d_contexts.stride(1), d_contexts.stride(0), d_keys, d_values, d_weight),
            *(self.sentences, queries.size(0), self.heads, self.positions, self.width),
        )
        return d_keys, d_values, d_weight.sum(0)


def dot_attention(query: Tensor, keys: Tensor, values: Tensor, *, penalty: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(q k' / sqrt(D) + penalty) v (Vaswani et al., NIPS 2017) and the weights, for the steps of a search.

    query [B, Q, G * D]; keys and values [B, G, S, D] of its type; penalty [B, 1, 1, S], where values below -1e7 give a
    weight of 0 if another position has no such value. Returns the weighted sums of values [B, Q, G * D], in
    their type, and the weights [B, G, Q, S] in at least fp32. On a CPU without gradients a C kernel computes them.
    """
    sentences, heads, positions, width = keys.shape
    if torch.is_grad_enabled() or not use_native(keys):
        rows = query.unflatten(-1, (heads, -1)).transpose(1, 2)  # [B, G, Q, D]
        scores = at_least_fp32(rows @ keys.transpose(2, 3)) * width**-0.5 + penalty
        weights = scores.softmax(-1)
        return (weights.to(values.dtype) @ values).transpose(1, 2).flatten(2), weights
    rows = readable_rows(query.flatten(0, 1))
    found = torch.empty(len(rows), heads * width, dtype=keys.dtype)
    weights = torch.empty(len(rows), heads, positions, dtype=torch.float32)
    kernel("dot_attention", keys.dtype)(
        *(rows, rows.stride(0), keys.contiguous(), values.contiguous(), penalty[:, 0, 0].float().contiguous()),
        *(width**-0.5, weights, found, len(rows), query.size(1), heads, positions, width),
    )
    return found.unflatten(0, (sentences, -1)), weights.unflatten(0, (sentences, -1)).transpose(1, 2)
