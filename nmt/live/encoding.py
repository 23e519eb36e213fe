"""Encoders that read forward, a token at a time: no token is read twice."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any, cast

import torch
from torch import Tensor, nn

from nmt.errors import ConfigError
from nmt.models.attention import AttentionMemory
from nmt.models.base import DecodingState, Seq2Seq
from nmt.models.blocks import BlockEncoder, EncoderBlock, KeptWords, SelfAttention, SourceMixing
from nmt.models.decoder import Memories, States
from nmt.models.encoder import DeepEncoder, Forward
from nmt.ops.recurrence import product_type

READS_AHEAD = "needs a model with model.encoder_direction: forward"


@singledispatch
def begun(part: nn.Module, like: Tensor) -> Any:
    """What a part of an encoder keeps before the first token; ConfigError for one that reads ahead."""
    raise ConfigError(READS_AHEAD)


@singledispatch
def read(part: nn.Module, x: Tensor, kept: Any) -> tuple[Tensor, Tensor, Any]:
    """The next token x [1, E]: the output, what the decoder's first states are made of (both [1, ...]), and what is
    kept."""
    raise ConfigError(READS_AHEAD)


@begun.register
def _(part: Forward, like: Tensor) -> Any:
    return part.cell.initial_state(1, like=like)


@read.register
def _(part: Forward, x: Tensor, kept: Any) -> tuple[Tensor, Tensor, Any]:
    state = part.cell.search_step(part.cell.project(x), kept)
    output = part.cell.output(state)
    return output, output, state


@begun.register
def _(part: DeepEncoder, like: Tensor) -> Any:
    return [begun(layer, like) for layer in part.layers]


@read.register
def _(part: DeepEncoder, x: Tensor, kept: Any) -> tuple[Tensor, Tensor, Any]:
    last, after = x, []
    for layer, residual, own in zip(part.layers, part.residuals, kept, strict=True):
        output, last, state = read(layer, x, own)
        after.append(state)
        x = residual(x, output)
    if part.widen is not None and part.widen_norm is not None:
        x = part.widen_norm(part.widen(x))
    return x, last, after


@begun.register
def _(part: BlockEncoder, like: Tensor) -> Any:
    return 0, [begun(block.mixing, like) for block in cast("list[EncoderBlock]", list(part.blocks))]


@read.register
def _(part: BlockEncoder, x: Tensor, kept: Any) -> tuple[Tensor, Tensor, Any]:
    place, states = kept
    x, after = part.words(x, torch.full((1,), float(place), device=x.device)), []
    for block, own in zip(cast("list[EncoderBlock]", list(part.blocks)), states, strict=True):
        mixed, _, state = read(block.mixing, block.norm.before(x), own)
        after.append(state)
        x = block.feed_forward(block.norm.after(x + mixed))
    return part.norm(x), x, (place + 1, after)


@begun.register
def _(part: SourceMixing, like: Tensor) -> Any:
    return begun(part.rnn, like)


@read.register
def _(part: SourceMixing, x: Tensor, kept: Any) -> tuple[Tensor, Tensor, Any]:
    output, last, state = read(part.rnn, x, kept)
    return part.out(output), last, state


@begun.register
def _(part: SelfAttention, like: Tensor) -> Any:
    if not part.causal:
        raise ConfigError(READS_AHEAD)
    heads = part.attention.heads
    none = torch.empty(1, heads, 0, like.size(-1) // heads, dtype=product_type(like), device=like.device)
    return KeptWords(none, none)


@read.register
def _(part: SelfAttention, x: Tensor, kept: Any) -> tuple[Tensor, Tensor, Any]:
    output, state = part.step(x, kept)
    return output, output, state


class Listener:
    """A source sentence of a model, read token by token."""

    def __init__(self, model: Seq2Seq) -> None:
        """Raises ConfigError for a model whose encoder reads ahead."""
        self._model = model
        bias = model.embeddings.bias
        self._kept = begun(model.encoder, bias.new_zeros(1, bias.numel()))
        self.memories: Memories = ()
        """What the decoder attends to: all tokens read so far."""
        self.initial: States = ()
        """The decoder's first states, if it begins now."""

    def read(self, ids: list[int]) -> None:
        """Read more tokens."""
        if not ids:
            return
        words = self._model.embeddings.embed_source(torch.tensor(ids, device=self._model.embeddings.bias.device))
        outputs = []
        for word in words.split(1):
            output, last, self._kept = read(self._model.encoder, word, self._kept)
            outputs.append(output)
        mask = torch.ones(1, len(ids), dtype=torch.bool, device=words.device)
        own = self._model.decoder.prepare(torch.stack(outputs, 1), mask)
        self.memories = tuple(_joined(self.memories, own)) if self.memories else own
        self.initial = self._model.decoder.unpack_states(self._model.initial_states(last))

    def state(self, states: States) -> DecodingState:
        """What the decoder continues from, in states of its own."""
        return DecodingState(self.memories, states)


def _joined(some: Memories, more: Memories) -> Iterator[AttentionMemory | None]:
    for one, other in zip(some, more, strict=True):
        if one is None or other is None:
            yield None
            continue
        powers = None if one.powers is None or other.powers is None else torch.cat([one.powers, other.powers], 2)
        keys, values = torch.cat([one.keys, other.keys], 2), torch.cat([one.values, other.values], 2)
        yield AttentionMemory(keys, values, torch.cat([one.penalty, other.penalty], 3), powers)
