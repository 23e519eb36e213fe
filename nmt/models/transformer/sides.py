"""Encoder and decoder of the architecture `transformer`: pre-norm residual blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from nmt.models.attention import AttentionMemory
from nmt.models.decoder import Decoder, Memories, States, Weights
from nmt.models.dropout import Dropout
from nmt.models.encoder import Encoder, EncoderOutput
from nmt.models.readout import InitialStates, Readout
from nmt.models.transformer.heads import KeptWords, RoomForWords, SelfAttention, SourceAttention
from nmt.models.transformer.mixing import BothWays, Mixing
from nmt.models.transformer.norm import BlockNorm, FeedForward
from nmt.models.transformer.options import Norm

WORDS_STEP: Final = 32
"""Room for the words of a translation grows by so many where steps are recorded."""
START: Final = 0.3
"""Deviation of the vector that target sentences start with."""


class Words(nn.Module):
    """Embeddings times sqrt(size), of which in training some words are zero as a whole."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.scale = math.sqrt(size)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] -> the same shape."""
        if self.training and self.dropout.p:
            x = x * self.dropout(x.new_ones(*x.shape[:-1], 1))
        return x * self.scale


class TargetWords(Words):
    """The same plus a learned vector, which is all there is at the start of a sentence.

    A norm of zeros, which a model gives as the word before the first, would have a gradient of 1 / sqrt(epsilon).
    """

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__(size, dropout)
        self.start = nn.Parameter(torch.empty(size))

    def reset_parameters(self, init_range: float) -> None:
        """Normal, with a deviation below that of the words, which is 1."""
        nn.init.normal_(self.start, std=START)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.start


class EncoderBlock(nn.Module):
    """x + dropout(mixing(norm(x))), then the feed-forward layer."""

    def __init__(
        self, mixing: BothWays | SelfAttention, feed_forward: FeedForward, *, size: int, norm: Norm, dropout: float
    ) -> None:
        super().__init__()
        self.norm = BlockNorm(size, norm)
        self.mixing = mixing
        self.dropout = Dropout(dropout)
        self.feed_forward = feed_forward

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x [B, S, size], mask [B, S]."""
        x = x + self.dropout(self.mixing(self.norm(x), mask))
        return cast("Tensor", self.feed_forward(x))


class BlockEncoder(Encoder):
    """Blocks, and a norm of their sum."""

    def __init__(self, blocks: Sequence[EncoderBlock], *, size: int, norm: Norm, word_dropout: float) -> None:
        super().__init__()
        self.words = Words(size, word_dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = BlockNorm(size, norm)
        self.output_size = self.last_size = size

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        x = self.words(x)
        for block in self.blocks:
            x = block(x, mask)
        return EncoderOutput(self.norm(x), x[:, 0])


class DecoderBlock(nn.Module):
    """x + dropout(mixing(norm(x))), then the same with attention to the source, then the feed-forward layer."""

    def __init__(
        self,
        mixing: Mixing,
        attention: SourceAttention,
        feed_forward: FeedForward | None,
        *,
        size: int,
        norm: Norm,
        dropout: float,
    ) -> None:
        super().__init__()
        self.norm = BlockNorm(size, norm)
        self.mixing = mixing
        self.query_norm = BlockNorm(size, norm)
        self.attention = attention
        self.dropout = Dropout(dropout)
        self.attention_dropout = Dropout(dropout)
        self.feed_forward = feed_forward

    def sequence(
        self, x: Tensor, memory: AttentionMemory, state: Any, mask: Tensor, *, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Whole sentences x [B, T, size], and the attention weights [B, G, T, S] where they are asked for."""
        x = x + self.dropout(self.mixing.sequence(self.norm(x), state, mask))
        found, chosen = self.attention(self.query_norm(x), memory, weights=weights)
        return self._fed(x + self.attention_dropout(found)), chosen

    def step(self, x: Tensor, memory: AttentionMemory, state: Any) -> tuple[Tensor, Any, Tensor]:
        """The next word x [N, size] of N rows, the state after it, and the weights [B, G, K, S]."""
        mixed, state = self.mixing.step(self.norm(x), state)
        x = x + self.dropout(mixed)
        rows = self.query_norm(x).unflatten(0, (memory.keys.size(0), -1))  # [B, K, size]
        found, chosen = self.attention.step(rows, memory)
        return self._fed(x + self.attention_dropout(found.flatten(0, 1))), state, chosen

    def _fed(self, x: Tensor) -> Tensor:
        return x if self.feed_forward is None else cast("Tensor", self.feed_forward(x))


class BlockDecoder(Decoder):
    """Blocks over the words so far; the readout takes their sum."""

    def __init__(self, blocks: Sequence[DecoderBlock], *, size: int, word_dropout: float) -> None:
        nn.Module.__init__(self)
        self.words = TargetWords(size, word_dropout)
        self.blocks = nn.ModuleList(blocks)

    @property
    def _blocks(self) -> list[DecoderBlock]:
        return cast("list[DecoderBlock]", list(self.blocks))

    @property
    def state_sizes(self) -> list[int]:
        return [block.mixing.state_size for block in self._blocks]

    def prepare(self, memory: Tensor, mask: Tensor) -> Memories:
        return tuple(block.attention.prepare(memory, mask) for block in self._blocks)

    def unpack_states(self, packed: Sequence[Tensor]) -> States:
        return tuple(block.mixing.unpack_state(part) for block, part in zip(self._blocks, packed, strict=True))

    def sequence(self, x: Tensor, memories: Memories, states: States, mask: Tensor) -> tuple[Tensor, ...]:
        return (self._sequence(x, memories, states, mask, weights=False)[0],)

    def attending_sequence(
        self, x: Tensor, memories: Memories, states: States, mask: Tensor
    ) -> tuple[tuple[Tensor, ...], Weights]:
        x, weights = self._sequence(x, memories, states, mask, weights=True)
        return (x,), tuple(weights)

    def attending_step(
        self, x: Tensor, memories: Memories, states: States
    ) -> tuple[tuple[Tensor, ...], States, Weights]:
        x, after, weights = self.words(x), [], []
        for block, memory, state in self._layers_with(memories, states):
            x, new, chosen = block.step(x, memory, state)
            after.append(new)
            weights.append(chosen)
        return (x,), tuple(after), tuple(weights)

    def with_room(self, states: States, words: int) -> States:
        """The states after `words` words, such that there is room for one more and shapes seldom change."""
        return tuple(_with_room(state, words) for state in states)

    def _sequence(
        self, x: Tensor, memories: Memories, states: States, mask: Tensor, *, weights: bool
    ) -> tuple[Tensor, list[Tensor]]:
        x, found = self.words(x), []
        for block, memory, state in self._layers_with(memories, states):
            x, chosen = block.sequence(x, memory, state, mask, weights=weights)
            found += [] if chosen is None else [chosen]
        return x, found

    def _layers_with(self, memories: Memories, states: States) -> Iterator[tuple[DecoderBlock, AttentionMemory, Any]]:
        for block, memory, state in zip(self._blocks, memories, states, strict=True):
            assert memory is not None
            yield block, memory, state


def _with_room(state: Any, words: int) -> Any:
    if isinstance(state, RoomForWords):
        if words < state.keys.size(2):
            return state
        state = state.cut(words)
    return state.with_room(WORDS_STEP) if isinstance(state, KeptWords) else state


class ZeroStates(InitialStates):
    """The decoder begins with zeros: what it needs of the source it attends to."""

    def __init__(self, state_sizes: list[int]) -> None:
        nn.Module.__init__(self)
        self.state_sizes = state_sizes

    def forward(self, last: Tensor) -> list[Tensor]:
        """last [B, width] -> for each decoder layer [B, P]."""
        dtype = torch.promote_types(last.dtype, torch.float32)
        return [last.new_zeros(len(last), size, dtype=dtype) for size in self.state_sizes]


class NormReadout(Readout):
    """The norm of the sum of the decoder's blocks."""

    def __init__(self, size: int, norm: Norm) -> None:
        super().__init__()
        self.norm = BlockNorm(size, norm)

    def forward(self, *pieces: Tensor) -> Tensor:
        return cast("Tensor", self.norm(pieces[0]))
