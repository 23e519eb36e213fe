"""Additive attention over a projected source, for one query or for all beams of a sentence."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.dispatch import choose

__all__ = ["additive_attention"]


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
