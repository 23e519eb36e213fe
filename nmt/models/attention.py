"""Additive attention with one or more heads; the source is an argument, never stored on the module."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmt.cells import as_initializer
from nmt.models.parts import Linear, initialize
from nmt.ops.attention import additive_attention, attend_native, powers_of
from nmt.ops.dispatch import use_native
from nmt.ops.loop import Attention, Memory
from nmt.ops.recurrence import Projection, at_least_fp32, product_type

PADDING_PENALTY = -1e8


def padding_penalty(mask: Tensor, *, like: Tensor) -> Tensor:
    """[B, 1, 1, S], added to scores: 0 at words, where mask [B, S] is true, and -1e8 at padding; of a mask for each
    query, [B, T, S], it is [B, 1, T, S]."""
    penalty = (1 - mask.to(at_least_fp32(like).dtype)) * PADDING_PENALTY
    return penalty.unsqueeze(1) if mask.dim() == 3 else penalty[:, None, None]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, G * D] -> [B, G, T, D]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class AttentionMemory(NamedTuple):
    """What attention reads for B sentences with S source positions in G heads of the M-wide memory."""

    keys: Tensor  # [B, G, S, M/G], twice the projected memory (see `nmt.ops.attention`)
    values: Tensor  # [B, G, S, M/G], the memory itself
    penalty: Tensor  # [B, 1, 1 or Q, S], 0 at words, -1e8 at padding; added to the scores
    powers: Tensor | None = None
    """[B, G, S, M/G], what the C kernels need of the keys when no gradient is; see `nmt.ops.attention`"""

    @property
    def attended(self) -> Memory:
        """What loops over time attend to."""
        return Memory(self.keys, self.values, self.penalty)

    def at(self, query: int) -> AttentionMemory:
        """What one of several queries sees."""
        return self._replace(penalty=self.penalty[:, :, query : query + 1]) if self.penalty.size(2) > 1 else self

    def keep(self, sentences: Tensor) -> AttentionMemory:
        """The memory of the given sentences [B'] only."""
        powers = None if self.powers is None else self.powers.index_select(0, sentences)
        keys, values, penalty = (part.index_select(0, sentences) for part in self[:3])
        return AttentionMemory(keys, values, penalty, powers)


class AttentionQuery(nn.Module):
    """What asks a memory that another attention has prepared; see `AdditiveAttention`."""

    def __init__(self, query_size: int, memory_size: int, *, heads: int = 1, layer_norm: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear([query_size], memory_size, normalize=layer_norm)
        self.score_weight = nn.Parameter(torch.empty(memory_size // heads))
        self.score_bias = nn.Parameter(torch.empty(1))

    def reset_parameters(self, init_range: float) -> None:
        """Weights by the initializer, zero biases."""
        for linear in self.children():
            initialize(linear, init_range)
        as_initializer(init_range).weight_(self.score_weight, fan_in=self.score_weight.numel(), fan_out=1)
        nn.init.zeros_(self.score_bias)

    def level(self, context: Projection) -> Attention:
        """What loops over time need of it; `context` is the input product of the cell that reads its contexts."""
        query = self.query
        norm = (query.norms[0].scale, query.norms[0].offset) if query.norms else (None, None)
        return Attention(Projection(query.weights[0], query.bias, *norm), self.score_weight, self.score_bias, context)

    def attend(self, query: Tensor, memory: AttentionMemory) -> tuple[Tensor, Tensor]:
        """Context [B, Q, M] and weights [B, G, Q, S] for Q queries [B, Q, H] of each sentence.

        In training Q is 1, in search the beam size: the beams of a sentence share its memory.
        """
        projected = self.query(query)
        if memory.powers is not None and not torch.is_grad_enabled():
            return attend_native(
                projected,
                memory.keys,
                powers=memory.powers,
                values=memory.values,
                penalty=memory.penalty,
                weight=self.score_weight,
            )
        return additive_attention(
            split_heads(2 * projected.to(memory.keys.dtype), self.heads).contiguous(),
            memory.keys,
            values=memory.values,
            penalty=memory.penalty,
            weight=self.score_weight,
            bias=self.score_bias,
        )


class AdditiveAttention(AttentionQuery):
    """e_j = w . tanh(W_q h + b_q + W_m m_j) + b, softmax over the source, weighted sum of the memory.

    Each head has its part of the width and shares w and b with the others; there is no output
    projection. With layer norm W_q h and W_m m_j are normalised (Bahdanau et al., ICLR 2015).
    """

    def __init__(self, query_size: int, memory_size: int, *, heads: int = 1, layer_norm: bool = False) -> None:
        super().__init__(query_size, memory_size, heads=heads, layer_norm=layer_norm)
        self.memory = Linear([memory_size], memory_size, bias=False, normalize=layer_norm)

    def prepare(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        """Project memory [B, S, M] once for all queries; mask [B, S] is true at words."""
        dtype = product_type(memory)
        penalty = padding_penalty(mask, like=memory)
        # Contiguous, so that no time step has to copy them.
        keys = split_heads(2 * self.memory(memory).to(dtype), self.heads).contiguous()
        values = split_heads(memory.to(dtype), self.heads).contiguous()
        powers = powers_of(keys) if not torch.is_grad_enabled() and use_native(keys) else None
        return AttentionMemory(keys, values, penalty, powers)
