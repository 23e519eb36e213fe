"""Encoders that read forward, a token at a time: no token is read twice."""

from __future__ import annotations

from collections import deque
from functools import singledispatch
from typing import Any, Final, cast

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
TAKEN_BACK: Final = 16
"""Tokens that a listener can take back; before these it has to begin anew."""
_LEAST_ROOM: Final = 64


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
        first = begun(model.encoder, bias.new_zeros(1, bias.numel())), None
        self._states = deque[Any]([first], TAKEN_BACK + 1)
        """What the encoder keeps after each of the last tokens, and what the decoder's first states are made of."""
        self._rooms: tuple[_Room | None, ...] = ()
        self.tokens = 0
        """How many have been read."""

    @property
    def initial(self) -> States:
        """The decoder's first states, if it begins now."""
        return self._model.decoder.unpack_states(self._model.initial_states(self._states[-1][1]))

    @property
    def memories(self) -> Memories:
        """What the decoder attends to: all tokens read so far."""
        return tuple(None if room is None else room.memory(self.tokens) for room in self._rooms)

    def read(self, ids: list[int]) -> None:
        """Read more tokens."""
        if not ids:
            return
        words = self._model.embeddings.embed_source(torch.tensor(ids, device=self._model.embeddings.bias.device))
        outputs = []
        for word in words.split(1):
            output, last, kept = read(self._model.encoder, word, self._states[-1][0])
            self._states.append((kept, last))
            outputs.append(output)
        mask = torch.ones(1, len(ids), dtype=torch.bool, device=words.device)
        memories = self._model.decoder.prepare(torch.stack(outputs, 1), mask)
        self._rooms = self._rooms or tuple(None if one is None else _Room(one) for one in memories)
        for room, own in zip(self._rooms, memories, strict=True):
            if room is not None and own is not None:
                room.write(own, self.tokens)
        self.tokens += len(ids)

    def take_back(self, tokens: int) -> bool:
        """Forget the last tokens; whether that was possible."""
        if tokens >= len(self._states):
            return False
        for _ in range(tokens):
            self._states.pop()
        self.tokens -= tokens
        return True

    def state(self, states: States) -> DecodingState:
        """What the decoder continues from, in states of its own."""
        return DecodingState(self.memories, states)


class _Room:
    """The memory of one attention, with room for more tokens, so that none is copied for each that follows."""

    def __init__(self, first: AttentionMemory) -> None:
        self._parts = [part.narrow(axis, 0, 0) for part, axis in self._of(first)]

    def _of(self, memory: AttentionMemory) -> list[tuple[Tensor, int]]:
        """The parts of a memory, and the axis of the tokens of each."""
        parts = [(memory.keys, 2), (memory.values, 2), (memory.penalty, 3)]
        return parts if memory.powers is None else [*parts, (memory.powers, 2)]

    def write(self, more: AttentionMemory, place: int) -> None:
        """Write the memory of tokens that begin at a place."""
        for index, (part, axis) in enumerate(self._of(more)):
            end = place + part.size(axis)
            if end > self._parts[index].size(axis):
                shape = [*part.shape]
                shape[axis] = max(_LEAST_ROOM, 2 * end)
                room = part.new_empty(shape)
                room.narrow(axis, 0, place).copy_(self._parts[index].narrow(axis, 0, place))
                self._parts[index] = room
            self._parts[index].narrow(axis, place, part.size(axis)).copy_(part)

    def memory(self, tokens: int) -> AttentionMemory:
        """That of the first tokens."""
        keys, values, penalty, *powers = self._parts
        known = powers[0][:, :, :tokens] if powers else None
        return AttentionMemory(keys[:, :, :tokens], values[:, :, :tokens], penalty[..., :tokens], known)
