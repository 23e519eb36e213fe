"""Additive attention with its C kernels: one call for the queries of each step, one after the loop for the memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from nmt.ops.native import kernel

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

    `powers` are `powers_of` the keys. The other arguments are as in `nmt.ops.attention`, without the bias, which does
    not change the softmax.
    """
    sentences, queries, _ = query.shape
    attention = AttentionKernel(keys, values, powers=powers, penalty=penalty[:, 0, 0].float(), weight=weight.float())
    rows = query.to(keys.dtype).flatten(0, 1).contiguous()
    context = torch.empty_like(rows)
    weights = torch.empty(len(rows), attention.heads, attention.positions, dtype=torch.float32)
    attention.forward(rows, weights=weights, context=context)
    return context.unflatten(0, (sentences, queries)), weights.unflatten(0, (sentences, queries)).transpose(1, 2)


class AttentionKernel:
    """Attention over one memory of B sentences in G heads: keys and values [B, G, S, D], penalty [B, S] fp32.

    `powers` are `powers_of` the keys. The keys are doubled, see `nmt.ops.attention`; the queries are not. `weight` [D]
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
        """Why it cannot attend to these keys; always None."""
        return None

    def __init__(self, keys: Tensor, values: Tensor, *, powers: Tensor, penalty: Tensor, weight: Tensor) -> None:
        self.keys, self.powers, self.values = keys.contiguous(), powers.contiguous(), values.contiguous()
        self.penalty, self.weight = penalty.contiguous(), weight.contiguous()
        self.sentences, self.heads, self.positions, self.width = keys.shape
        self.dtype = keys.dtype

    def forward(self, query: Tensor, *, weights: Tensor, context: Tensor) -> None:
        """Write the weights and the context of `query`."""
        run = kernel("attention_forward", self.dtype)
        run(
            *(query, query.stride(0), self.keys, self.powers, self.values, self.penalty, self.weight),
            *(weights, weights.stride(0), context, context.stride(0), *self._sizes(query)),
        )

    def query_gradient(
        self, query: Tensor, *, weights: Tensor, d_context: Tensor, d_scores: Tensor, d_query: Tensor
    ) -> None:
        """From d_context write d_query, and d_scores in the form for `memory_gradients` (strides of `weights`)."""
        run = kernel("attention_query", self.dtype)
        run(
            *(query, query.stride(0), self.keys, self.powers, self.values),
            *(self.weight, weights, weights.stride(0)),
            *(d_context, d_context.stride(0), d_scores, d_query, d_query.stride(0), *self._sizes(query)),
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
        run = kernel("attention_memory", self.dtype)
        run(
            *(queries, powers_of(queries, scale=2.0), queries.stride(1), queries.stride(0)),
            *(self.keys, self.powers, small, self.weight),
            *(weights, d_scores, weights.stride(1), weights.stride(0)),
            *(d_contexts, d_contexts.stride(1), d_contexts.stride(0), d_keys, d_values, d_weight),
            *(self.sentences, queries.size(0), self.heads, self.positions, self.width),
        )
        return d_keys, d_values, d_weight.sum(0)

    def _sizes(self, query: Tensor) -> tuple[int, ...]:
        return query.size(0), query.size(0) // self.sentences, self.heads, self.positions, self.width
