"""Additive attention for a loop over target positions that does without autograd, in Triton.

Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

from torch import Tensor

from nmt.ops.attention import launches
from nmt.ops.attention.launches import Memory


class AttentionSteps:
    """Attention over one memory of B sentences in G heads: keys and values [B, G, S, D], penalty [B, S] fp32.

    The keys are doubled, see `nmt.ops.attention`; the queries are not. `weight` [D] fp32. Queries and contexts are
    [N, G * D], N = B * Q rows, sentence-major; weights and the gradients of the scores [N, G, S] fp32. All are
    written where the caller says: steps of one sequence stand in its own tensors, [T, N, ...].
    """

    def __init__(self, keys: Tensor, values: Tensor, *, penalty: Tensor, weight: Tensor) -> None:
        self.memory = Memory(keys.contiguous(), values.contiguous(), weight.contiguous(), factor=2)
        self.penalty = penalty.contiguous()

    def forward(self, query: Tensor, *, weights: Tensor, context: Tensor) -> None:
        """Write the weights and the context of `query`."""
        launches.attend(
            self._heads(query), self.memory, penalty=self.penalty,
            context=context.unflatten(0, (len(self.penalty), -1)), weights=self._scores(weights),
        )  # fmt: skip

    def query_gradient(
        self, query: Tensor, *, weights: Tensor, d_context: Tensor, d_scores: Tensor, d_query: Tensor,
        d_weights: Tensor | None = None,
    ) -> None:  # fmt: skip
        """From d_context and, if there are any, d_weights, contiguous, write d_query, and d_scores as
        `memory_gradients` wants them."""
        launches.query_gradient(
            self._heads(query), self.memory, weights=self._scores(weights),
            d_context=d_context.unflatten(0, (len(self.penalty), -1)), d_weights=d_weights,
            d_scores=self._scores(d_scores), d_query=self._heads(d_query),
        )  # fmt: skip

    def memory_gradients(
        self, queries: Tensor, *, weights: Tensor, d_scores: Tensor, d_contexts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of keys, values and `weight`, from all T steps of one query a sentence.

        Time first: queries and d_contexts [T, B, G * D], weights and d_scores [T, B, G, S].
        """
        heads = self.memory.keys.size(1)
        by_head = queries.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)  # [B, G, T, D]
        d_keys, d_weight = launches.memory_gradients(by_head, self.memory, d_scores=d_scores.permute(1, 2, 0, 3))
        d_values = launches.values_gradient(
            self.memory.values, weights=weights.permute(1, 2, 0, 3), d_context=d_contexts.transpose(0, 1)
        )
        return d_keys, d_values, d_weight

    def _heads(self, rows: Tensor) -> Tensor:
        """[N, G * D] -> [B, G, Q, D]"""
        heads = self.memory.keys.size(1)
        return rows.unflatten(-1, (heads, -1)).unflatten(0, (len(self.penalty), -1)).transpose(1, 2)

    def _scores(self, rows: Tensor) -> Tensor:
        """[N, G, S] -> [B, G, Q, S]"""
        return rows.unflatten(0, (len(self.penalty), -1)).transpose(1, 2)
