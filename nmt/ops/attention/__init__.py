"""Additive attention over a projected source, for one query or for all beams of a sentence."""

from __future__ import annotations

from torch import Tensor

from nmt.ops.attention.reference import (
    attention_reference,
    memory_gradients_reference,
    query_gradient_reference,
)
from nmt.ops.dispatch import choose

__all__ = ["additive_attention", "attention_memory_gradients", "attention_query_gradient"]


def additive_attention(
    query: Tensor, keys: Tensor, *, values: Tensor, penalty: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Attend to S source positions from Q queries of each sentence (Bahdanau et al., ICLR 2015).

        e_j = w . tanh(q + k_j) + b + penalty_j;  a = softmax(e);  context = sum_j a_j values_j

    `query` and `keys` are 2q and 2k: tanh(x) = 2 sigmoid(2x) - 1, on CPU a sigmoid takes a tenth of
    the time of tanh, this is the most expensive line of a decoder step, and -sum(w) does not change
    the softmax.

    Shapes: B sentences, G heads of width M/G. `query` [B, G, Q, M/G]; `keys` and `values`
    [B, G, S, M/G]; `penalty` [B, 1, 1, S] is 0 at words and very low at padding; `weight` [M/G] and
    `bias` [1] are shared by the heads. The Q queries of a sentence read the same keys and values,
    which are never copied.

    Returns the context [B, Q, M], heads side by side, and the weights a [B, G, Q, S] in the type of
    `penalty` (fp32, or fp64). The kernel gives `penalty` no gradient.
    """
    run = choose("attention", attention_reference, like=keys)
    return run(query, keys, values=values, penalty=penalty, weight=weight, bias=bias)


def attention_query_gradient(
    query: Tensor, keys: Tensor, *, values: Tensor, weights: Tensor, weight: Tensor, d_context: Tensor
) -> tuple[Tensor, Tensor]:
    """What a backward loop over time needs at each step, without autograd: the gradient of the queries.

    Shapes as in `additive_attention`; `weights` [B, G, Q, S] are what it returned, `d_context` [B, Q, M] is the
    gradient of the context. Returns the gradients of the scores e [B, G, Q, S], in the type of `weights`, and of
    `query`, in its type.
    """
    run = choose("attention_query_gradient", query_gradient_reference, like=keys)
    return run(query, keys, values=values, weights=weights, weight=weight, d_context=d_context)


def attention_memory_gradients(
    query: Tensor,
    keys: Tensor,
    *,
    values: Tensor,
    weights: Tensor,
    weight: Tensor,
    d_scores: Tensor,
    d_context: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """What is left for after that loop, for all its queries at once: the gradients of keys, values and weight.

    `query` [B, G, T, M/G], `weights` and `d_scores` [B, G, T, S], `d_context` [B, T, M] of all T steps; any strides
    but that of the last axis. The gradient of the weight is in the type of `d_scores`; that of the bias is zero.
    """
    run = choose("attention_memory_gradients", memory_gradients_reference, like=keys)
    return run(query, keys, values=values, weights=weights, weight=weight, d_scores=d_scores, d_context=d_context)
