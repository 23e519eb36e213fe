"""Multi-head dot-product attention: to the source, and of the words of one side to each other with rotary positions."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.models.attention import PADDING_PENALTY, AttentionMemory, padding_penalty
from nmt.models.dropout import Dropout
from nmt.models.linear import Linear
from nmt.ops.dot_attention import attend
from nmt.ops.recurrence import at_least_fp32, product_type

BASE = 10_000.0
"""Wave lengths of rotary positions grow up to 2 pi times this (Su et al., 2021)."""


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, G * D] -> [B, G, T, D]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, G, T, D] -> [B, T, G * D]."""
    return x.transpose(1, 2).flatten(2)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions (Su et al., 2021): pairs (i, i + D/2) of x [..., T, D] turned by position * 10000^(-2i/D).

    `positions` [T], or [N, 1] for one word of each of N rows x [N, G, 1, D]. Angles are fp32 at least.
    """
    half = x.size(-1) // 2
    places = torch.arange(half, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
    rates = torch.exp(places * (-math.log(BASE) / half))
    angles = positions.unsqueeze(-1) * rates  # [T, D/2] or [N, 1, D/2]
    if angles.dim() == 3:
        angles = angles.unsqueeze(1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Attended(NamedTuple):
    """What queries have found."""

    found: Tensor
    """[B, Q, G * D]"""
    weights: Tensor | None
    """[B, G, Q, S], where they were asked for"""


class DotAttention(nn.Module):
    """softmax(q k' / sqrt(D) + penalty) v in G heads (Vaswani et al., NIPS 2017), without any projection."""

    def __init__(self, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = Dropout(dropout)

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        penalty: Tensor | None,
        causal: bool = False,
        weights: bool = False,
    ) -> Attended:
        """query [B, G, Q, D], keys and values [B, G, S, D], penalty [B, 1, 1, S], all but it of one type.

        `causal` with as many queries as keys: each sees the positions up to its own.
        """
        drops = self.training and self.dropout.p > 0
        if not (weights or drops):
            mask = None if penalty is None else penalty.to(query.dtype)
            found = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal)
            return Attended(join_heads(found), None)
        scores = at_least_fp32(query @ keys.transpose(2, 3)) * query.size(-1) ** -0.5
        if penalty is not None:
            scores = scores + penalty
        if causal:
            after = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(after, -math.inf)
        chosen = scores.softmax(-1)  # [B, G, Q, S]
        seen = chosen
        if drops:  # the mask of a word must not depend on how far its sentence is padded
            seen = self.dropout(chosen.permute(0, 2, 3, 1).contiguous()).permute(0, 3, 1, 2)
        return Attended(join_heads(seen.to(values.dtype) @ values), chosen if weights else None)


class SourceAttention(nn.Module):
    """Attention of target words to the source, whose keys and values are computed once."""

    def __init__(self, size: int, memory_size: int, *, heads: int, dropout: float) -> None:
        super().__init__()
        self.query = Linear([size], size)
        self.source = Linear([memory_size], 2 * size)
        self.attention = DotAttention(heads, dropout)
        self.out = Linear([size], size)

    def prepare(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        """Keys and values of memory [B, S, M]; mask [B, S] is true at words."""
        heads = self.attention.heads
        keys, values = (split_heads(part, heads) for part in self.source(memory).chunk(2, -1))
        return AttentionMemory(keys.contiguous(), values.contiguous(), padding_penalty(mask, like=memory))

    def forward(self, x: Tensor, memory: AttentionMemory, *, weights: bool = False) -> Attended:
        """x [B, Q, size], target words of each sentence."""
        query = split_heads(self.query(x), self.attention.heads).to(memory.keys.dtype)
        found, chosen = self.attention(query, memory.keys, memory.values, penalty=memory.penalty, weights=weights)
        return Attended(self.out(found), chosen)

    def step(self, x: Tensor, memory: AttentionMemory) -> tuple[Tensor, Tensor]:
        """x [B, K, size], the next word of K hypotheses of each sentence: what is added, and weights [B, G, K, S]."""
        query = self.query(x).to(memory.keys.dtype)
        found, weights = attend(query, memory.keys, memory.values, penalty=memory.penalty)
        return self.out(found), weights


class SelfAttention(nn.Module):
    """Attention of the words of one side to each other, with rotary positions."""

    def __init__(self, size: int, *, heads: int, dropout: float) -> None:
        super().__init__()
        self.inputs = Linear([size], 3 * size)
        self.attention = DotAttention(heads, dropout)
        self.out = Linear([size], size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x [B, T, size]; each word sees those where mask [B, T] is true or, without a mask, those up to itself."""
        positions = torch.arange(x.size(1), device=x.device)
        query, keys, values = self._heads_of(x)
        query, keys = rotate(query, positions), rotate(keys, positions)
        penalty = None if mask is None else padding_penalty(mask, like=x)
        return self.out(self.attention(query, keys, values, penalty=penalty, causal=mask is None).found)

    def step(self, x: Tensor, kept: KeptWords | RoomForWords) -> tuple[Tensor, KeptWords | RoomForWords]:
        """The next word x [N, size] of N rows, which sees those kept and itself."""
        query, keys, values = self._heads_of(x.unsqueeze(1))  # [N, G, 1, D]
        position = kept.position(like=x)
        kept = kept.with_word(rotate(keys, position), values)
        found, _ = self.attention(rotate(query, position), kept.keys, kept.values, penalty=kept.penalty)
        return self.out(found.squeeze(1)), kept

    def _heads_of(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        products = self.inputs(x).to(product_type(x))
        query, keys, values = (split_heads(part, self.attention.heads) for part in products.chunk(3, -1))
        return query, keys, values


class KeptWords(NamedTuple):
    """Keys and values of the words so far of N rows, in G heads."""

    keys: Tensor
    """[N, G, T, D]"""
    values: Tensor
    """[N, G, T, D]"""

    @property
    def penalty(self) -> Tensor | None:
        """None: each of them is a word."""
        return None

    def position(self, *, like: Tensor) -> Tensor:
        """Of the next word, [1]."""
        return torch.full((1,), self.keys.size(2), device=like.device)

    def with_word(self, key: Tensor, value: Tensor) -> KeptWords:
        """With another word, [N, G, 1, D] each."""
        return KeptWords(torch.cat([self.keys, key], 2), torch.cat([self.values, value], 2))

    def with_room(self, step: int) -> RoomForWords:
        """The same with room for more, up to a multiple of `step` words."""
        there = self.keys.size(2)
        room = (0, 0, 0, (there // step + 1) * step - there)
        used = torch.full((len(self.keys), 1), there, device=self.keys.device)
        return RoomForWords(F.pad(self.keys, room), F.pad(self.values, room), used)


class RoomForWords(NamedTuple):
    """The same as `KeptWords` with room for more words, so that a step changes no shape."""

    keys: Tensor
    """[N, G, C, D]"""
    values: Tensor
    """[N, G, C, D]"""
    used: Tensor
    """[N, 1] int64, how many words there are"""

    @property
    def penalty(self) -> Tensor:
        """[N, 1, 1, C], -1e8 where there is no word yet."""
        places = torch.arange(self.keys.size(2), device=self.keys.device)
        return ((places >= self.used) * PADDING_PENALTY)[:, None, None]

    def position(self, *, like: Tensor) -> Tensor:
        """Of the next word, [N, 1]."""
        return self.used

    def with_word(self, key: Tensor, value: Tensor) -> RoomForWords:
        """With another word, [N, G, 1, D] each; there must be room."""
        place = self.used[:, None, None].expand_as(key)
        return RoomForWords(
            self.keys.scatter(2, place, key.to(self.keys.dtype)),
            self.values.scatter(2, place, value.to(self.values.dtype)),
            self.used + 1,
        )

    def cut(self, words: int) -> KeptWords:
        """Without the room, of which the first `words` places are used."""
        return KeptWords(self.keys[:, :, :words], self.values[:, :, :words])
