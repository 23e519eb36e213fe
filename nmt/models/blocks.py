"""The parts of the architecture `transformer`: residual blocks whose words a unit or attention mixes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.models.attention import PADDING_PENALTY, AttentionMemory, padding_penalty, split_heads
from nmt.models.decoder import Decoder, Memories, Pieces, States, Weights, Whole
from nmt.models.encoder import Bidirectional, Encoder, EncoderOutput, Forward, MakeCell
from nmt.models.parts import Dropout, Embeddings, InitialStates, Linear, Readout, Tying
from nmt.ops.attention import dot_attention
from nmt.ops.recurrence import at_least_fp32, product_type

Activation = Literal["relu", "gated", "swish", "gelu"]

ACTIVATIONS: Final[Mapping[Activation, Callable[[Tensor], Tensor]]] = {"relu": F.relu, "swish": F.silu, "gelu": F.gelu}
"""What is applied to each value of the inner layer; `gated` also multiplies."""

Sinusoids = Literal["marian", "vaswani"]


class Norm(NamedTuple):
    """How the parts of blocks are normalised."""

    kind: Literal["layer", "rms"] = "layer"
    epsilon: float = 1e-6
    after: bool = False
    """The sum of a part and its input instead of its input."""


class BlockNorm(nn.Module):
    """Layer norm (Ba et al., 2016), or RMS norm: scale * x / sqrt(mean(x^2) + epsilon).

    RMS norm is that of Zhang and Sennrich (NeurIPS 2019). Over the last axis, in at least fp32. Scales start from 1,
    whatever `model.layer_norm_scale` is.
    """

    def __init__(self, size: int, norm: Norm) -> None:
        super().__init__()
        self.norm = norm
        self.scale = nn.Parameter(torch.ones(size))
        self.offset = nn.Parameter(torch.zeros(size)) if norm.kind == "layer" else None

    def reset_parameters(self, init_range: float) -> None:
        """Scale 1, offset 0, whatever the initializer."""
        nn.init.ones_(self.scale)
        if self.offset is not None:
            nn.init.zeros_(self.offset)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., size]."""
        x = x.to(torch.promote_types(self.scale.dtype, torch.float32))
        if self.offset is not None:
            return F.layer_norm(x, self.scale.shape, self.scale, self.offset, self.norm.epsilon)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.norm.epsilon) * self.scale

    def before(self, x: Tensor) -> Tensor:
        """What a part of a block reads of x."""
        return x if self.norm.after else self(x)

    def after(self, x: Tensor) -> Tensor:
        """What follows of x, the sum of a part and its input."""
        return self(x) if self.norm.after else x


class FeedForward(nn.Module):
    """x + dropout(W_2 dropout(f(W_1 norm(x) + b_1)) + b_2), or the norm of the whole.

    f is relu, swish (silu), gelu (of the normal distribution), or with `gated` silu(a) * b of the two halves of a
    product twice as wide (SwiGLU; Shazeer, 2020).
    """

    def __init__(
        self, size: int, width: int, *, activation: Activation, norm: Norm, dropout: float, residual_dropout: float
    ) -> None:
        super().__init__()
        self.norm = BlockNorm(size, norm)
        self.activation = activation
        self.up = Linear([size], width * (2 if activation == "gated" else 1))
        self.down = Linear([width], size)
        self.dropout = Dropout(dropout)
        self.residual_dropout = Dropout(residual_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] -> the same shape."""
        inner = self.up(self.norm.before(x))
        if self.activation == "gated":
            gate, inner = inner.chunk(2, -1)
            inner = F.silu(gate) * inner
        else:
            inner = ACTIVATIONS[self.activation](inner)
        return self.norm.after(x + self.residual_dropout(self.down(self.dropout(inner))))


BASE = 10_000.0
"""Wave lengths of rotary positions grow up to 2 pi times this (Su et al., 2021)."""


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

    found: Tensor  # [B, Q, G * D]
    weights: Tensor | None  # [B, G, Q, S], where they were asked for


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
            dtype = query.dtype
            if query.is_cpu:  # where the gradient in bf16 takes PyTorch six times as long as in fp32
                query, keys, values = (at_least_fp32(x) for x in (query, keys, values))
            mask = None if penalty is None else penalty.to(query.dtype)
            with torch.autocast(query.device.type, enabled=False):
                found = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal)
            return Attended(found.transpose(1, 2).flatten(2).to(dtype), None)
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
        found = seen.to(values.dtype) @ values  # [B, G, Q, D]
        return Attended(found.transpose(1, 2).flatten(2), chosen if weights else None)


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
        found, weights = dot_attention(query, memory.keys, memory.values, penalty=memory.penalty)
        return self.out(found), weights


class SelfAttention(nn.Module):
    """Attention of the words of one side to each other, with rotary positions or none; `causal`: to those before, by
    all at once."""

    def __init__(self, size: int, *, heads: int, dropout: float, rotary: bool, causal: bool = False) -> None:
        super().__init__()
        self.rotary, self.causal = rotary, causal
        self.inputs = Linear([size], 3 * size)
        self.attention = DotAttention(heads, dropout)
        self.out = Linear([size], size)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x [B, T, size]; each word sees those where mask [B, T] is true or, without a mask, those up to itself."""
        query, keys, values = self._heads_of(x, torch.arange(x.size(1), device=x.device))
        causal = self.causal or mask is None  # no word sees padding, which is behind all words
        penalty = None if causal or mask is None else padding_penalty(mask, like=x)
        return self.out(self.attention(query, keys, values, penalty=penalty, causal=causal).found)

    def step(self, x: Tensor, kept: KeptWords | RoomForWords) -> tuple[Tensor, KeptWords | RoomForWords]:
        """The next word x [N, size] of N rows, which sees those kept and itself."""
        query, keys, values = self._heads_of(x.unsqueeze(1), kept.position(like=x))  # [N, G, 1, D]
        kept = kept.with_word(keys, values)
        found, _ = self.attention(query, kept.keys, kept.values, penalty=kept.penalty)
        return self.out(found.squeeze(1)), kept

    def _heads_of(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        products = self.inputs(x).to(product_type(x))
        query, keys, values = (split_heads(part, self.attention.heads) for part in products.chunk(3, -1))
        return (rotate(query, positions), rotate(keys, positions), values) if self.rotary else (query, keys, values)


class KeptWords(NamedTuple):
    """Keys and values of the words so far of N rows, in G heads."""

    keys: Tensor  # [N, G, T, D]
    values: Tensor  # [N, G, T, D]

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

    keys: Tensor  # [N, G, C, D]
    values: Tensor  # [N, G, C, D]
    used: Tensor  # [N, 1] int64, how many words there are

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


class UnitMixing(nn.Module):
    """What mixes the words of the target, normalised, each of which sees those up to itself: a recurrent unit.

    A linear map follows, unless what the unit puts out is taken as it is.
    """

    state_size: int
    """P, the width of the packed state before the first word."""

    def __init__(self, make_cell: MakeCell, size: int, *, projection: bool) -> None:
        super().__init__()
        self.cell = make_cell(size)
        self.out = Linear([self.cell.hidden_size], size) if projection else nn.Identity()
        self.state_size = self.cell.state_size

    def unpack_state(self, packed: Tensor) -> Any:
        """The state of N rows from packed [N, P]."""
        return self.cell.unpack_state(packed)

    def sequence(self, x: Tensor, state: Any, mask: Tensor) -> tuple[Tensor, Any]:
        """x [B, T, size] from a state, and the state after it; mask [B, T] is true at words."""
        outputs, state = self.cell.for_batch(x).layer(x, state, mask)
        return self.out(outputs), state

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The next word x [N, size] of N rows, and the state after it."""
        state = self.cell.search_step(self.cell.project(x), state)
        return self.out(self.cell.output(state)), state


class AttentionMixing(nn.Module):
    """The same by self-attention, which keeps keys and values of all words so far."""

    state_size = 0

    def __init__(self, size: int, *, heads: int, dropout: float, rotary: bool) -> None:
        super().__init__()
        self.attention = SelfAttention(size, heads=heads, dropout=dropout, rotary=rotary)
        self.head_size = size // heads

    def unpack_state(self, packed: Tensor) -> KeptWords:
        shape = len(packed), self.attention.attention.heads, 0, self.head_size
        none = torch.empty(shape, dtype=product_type(packed), device=packed.device)
        return KeptWords(none, none)

    def sequence(self, x: Tensor, state: Any, mask: Tensor) -> tuple[Tensor, Any]:
        return self.attention(x, None), state

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.attention.step(x, state)


class SourceMixing(nn.Module):
    """A recurrent unit over the source, in both directions or `forward`, and a linear map of what it puts out."""

    def __init__(self, make_cell: MakeCell, size: int, *, forward: bool) -> None:
        super().__init__()
        self.rnn = (Forward if forward else Bidirectional)(make_cell, size)
        self.out = Linear([self.rnn.output_size], size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x [B, S, size], mask [B, S]."""
        return self.out(self.rnn(x, mask).outputs)


WORDS_STEP: Final = 32
"""Room for the words of a translation grows by so many where steps are recorded."""

START: Final = 0.3
"""Deviation of the vector that target sentences start with."""


def slowest(size: int, kind: Sinusoids) -> int:
    """The place whose sinusoid would have the rate 1/10000."""
    return size // 2 - (kind == "marian")


def sinusoids(positions: Tensor, size: int, kind: Sinusoids) -> Tensor:
    """Sines, then cosines, of positions [...] times rates that fall from 1 to 1/10000: [..., size], in fp32 at least.

    The rate of place k is 10000^(-k/(n - 1)), n = size / 2, as in Marian, or 10000^(-k/n) as in Vaswani et al. (2017).
    """
    places = torch.arange(size // 2, device=positions.device, dtype=torch.promote_types(positions.dtype, torch.float32))
    angles = positions.unsqueeze(-1) * torch.exp(places * (-math.log(BASE) / slowest(size, kind)))
    return torch.cat([angles.sin(), angles.cos()], -1)


class Words(nn.Module):
    """Embeddings times sqrt(size), of which in training some words are zero as a whole, and what tells their places.

    `start`: a learned vector is added, which is all there is at the start of a sentence, as a norm of zeros would have
    a gradient of 1 / sqrt(epsilon). `sinusoids`: those of the positions are added.
    """

    def __init__(self, size: int, dropout: float, *, start: bool = False, sinusoids: Sinusoids | None = None) -> None:
        super().__init__()
        self.scale = math.sqrt(size)
        self.dropout = Dropout(dropout)
        self.start = nn.Parameter(torch.empty(size)) if start else None
        self.sinusoids = sinusoids

    def reset_parameters(self, init_range: float) -> None:
        """Normal, with a deviation below that of the words, which is 1."""
        if self.start is not None:
            nn.init.normal_(self.start, std=START)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """x [..., size] -> the same shape. `positions` [T], by default 0 to T - 1, or [N] for one word of each row."""
        if self.training and self.dropout.p:
            x = x * self.dropout(x.new_ones(*x.shape[:-1], 1))
        x = x * self.scale
        if self.start is not None:
            x = x + self.start
        if self.sinusoids is None:
            return x
        if positions is None:
            positions = torch.arange(x.size(1), device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))
        return x + sinusoids(positions, x.size(-1), self.sinusoids).to(x.dtype)


class WordCount(NamedTuple):
    """The state of decoders that add sinusoids: how many words each of N rows has read."""

    words: Tensor  # [N, 1]


class EncoderBlock(nn.Module):
    """x + dropout(mixing(norm(x))), or the norm of the whole, then the feed-forward layer."""

    def __init__(
        self, mixing: SourceMixing | SelfAttention, feed_forward: FeedForward, *, size: int, norm: Norm, dropout: float
    ) -> None:
        super().__init__()
        self.norm = BlockNorm(size, norm)
        self.mixing = mixing
        self.dropout = Dropout(dropout)
        self.feed_forward = feed_forward

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x [B, S, size], mask [B, S]."""
        x = self.norm.after(x + self.dropout(self.mixing(self.norm.before(x), mask)))
        return cast("Tensor", self.feed_forward(x))


class BlockEncoder(Encoder):
    """Blocks and, unless each of them ends with a norm, one of their sum."""

    def __init__(self, blocks: Sequence[EncoderBlock], *, words: Words, size: int, norm: Norm) -> None:
        super().__init__()
        self.words = words
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.Identity() if norm.after else BlockNorm(size, norm)
        self.output_size = self.last_size = size

    def forward(self, x: Tensor, mask: Tensor, *, begun: Tensor | None = None) -> EncoderOutput:
        x = self.words(x)  # the decoder begins with zeros, whatever has been read
        for block in self.blocks:
            x = block(x, mask)
        return EncoderOutput(self.norm(x), x[:, 0])


class DecoderBlock(nn.Module):
    """x + dropout(mixing(norm(x))), or the norm of the whole, then the same with attention to the source, then the
    feed-forward layer."""

    def __init__(
        self,
        mixing: UnitMixing | AttentionMixing,
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
    ) -> tuple[Tensor, Any, Tensor | None]:
        """Whole sentences x [B, T, size], the state after them, and the weights [B, G, T, S] where these are wanted."""
        mixed, state = self.mixing.sequence(self.norm.before(x), state, mask)
        x = self.norm.after(x + self.dropout(mixed))
        found, chosen = self.attention(self.query_norm.before(x), memory, weights=weights)
        return self._fed(x + self.attention_dropout(found)), state, chosen

    def step(self, x: Tensor, memory: AttentionMemory, state: Any) -> tuple[Tensor, Any, Tensor]:
        """The next word x [N, size] of N rows, the state after it, and the weights [B, G, K, S]."""
        mixed, state = self.mixing.step(self.norm.before(x), state)
        x = self.norm.after(x + self.dropout(mixed))
        rows = self.query_norm.before(x).unflatten(0, (memory.keys.size(0), -1))  # [B, K, size]
        found, chosen = self.attention.step(rows, memory)
        return self._fed(x + self.attention_dropout(found.flatten(0, 1))), state, chosen

    def _fed(self, x: Tensor) -> Tensor:
        x = self.query_norm.after(x)
        return x if self.feed_forward is None else cast("Tensor", self.feed_forward(x))


class BlockDecoder(Decoder):
    """Blocks over the words so far; the readout takes their sum."""

    def __init__(self, blocks: Sequence[DecoderBlock], *, words: Words) -> None:
        nn.Module.__init__(self)
        self.words = words
        self.blocks = cast("Sequence[DecoderBlock]", nn.ModuleList(blocks))

    @property
    def state_sizes(self) -> list[int]:
        return [*([] if self.words.sinusoids is None else [1]), *(block.mixing.state_size for block in self.blocks)]

    def prepare(self, memory: Tensor, mask: Tensor) -> Memories:
        return tuple(block.attention.prepare(memory, mask) for block in self.blocks)

    def unpack_states(self, packed: Sequence[Tensor]) -> States:
        counts, own = self._parted(packed)
        own = tuple(block.mixing.unpack_state(part) for block, part in zip(self.blocks, own, strict=True))
        return (*map(WordCount, counts), *own)

    def sequence(self, x: Tensor, memories: Memories, states: States, mask: Tensor) -> Pieces:
        return self.whole_sequence(x, memories, states, mask, tells=False)[0]

    def whole_sequence(self, x: Tensor, memories: Memories, states: States, mask: Tensor, *, tells: bool) -> Whole:
        counts, states = self._parted(states)
        x, after, weights = self.words(x), [*counts], list[Tensor]()  # each sentence counts its own words
        for block, memory, state in self._layers_with(memories, states):
            x, last, chosen = block.sequence(x, memory, state, mask, weights=tells)
            after.append(last)
            weights += [] if chosen is None else [chosen]
        return (x,), tuple(after), tuple(weights)

    def attending_step(self, x: Tensor, memories: Memories, states: States) -> tuple[Pieces, States, Weights]:
        counts, states = self._parted(states)
        x = self.words(x, counts[0].words.squeeze(1) if counts else None)
        after: list[Any] = [WordCount(count.words + 1) for count in counts]
        weights = []
        for block, memory, state in self._layers_with(memories, states):
            x, new, chosen = block.step(x, memory, state)
            after.append(new)
            weights.append(chosen)
        return (x,), tuple(after), tuple(weights)

    def with_room(self, states: States, words: int) -> States:
        roomy: list[Any] = []
        for state in states:
            if isinstance(state, RoomForWords) and words >= state.keys.size(2):
                state = state.cut(words)
            roomy.append(state.with_room(WORDS_STEP) if isinstance(state, KeptWords) else state)
        return tuple(roomy)

    def _parted(self, states: Sequence[Any]) -> tuple[States, States]:
        """The count of words, if there is one, and the states of the blocks."""
        counts = 0 if self.words.sinusoids is None else 1
        return tuple(states[:counts]), tuple(states[counts:])

    def _layers_with(self, memories: Memories, states: States) -> Iterator[tuple[DecoderBlock, AttentionMemory, Any]]:
        for block, memory, state in zip(self.blocks, memories, states, strict=True):
            assert memory is not None
            yield block, memory, state


class ZeroStates(InitialStates):
    """The decoder begins with zeros: what it needs of the source it attends to."""

    def __init__(self, state_sizes: list[int]) -> None:
        nn.Module.__init__(self)
        self.state_sizes = state_sizes

    def forward(self, last: Tensor) -> list[Tensor]:
        """last [B, width] -> for each decoder layer [B, P]."""
        dtype = torch.promote_types(last.dtype, torch.float32)
        return [last.new_zeros(len(last), size, dtype=dtype) for size in self.state_sizes]


BIAS_COLUMNS: Final = 8
"""Columns of the output layer that hold its bias: products are slower with odd widths, and with 8 bits a row that has
one large value is less exact."""


class NormReadout(Readout):
    """The norm of the sum of the decoder's blocks, or that sum; with an output bias, ones for its columns behind it."""

    def __init__(self, size: int, norm: Norm, *, output_bias: bool) -> None:
        super().__init__()
        self.norm = nn.Identity() if norm.after else BlockNorm(size, norm)
        self.ones = BIAS_COLUMNS if output_bias else 0

    def forward(self, *pieces: Tensor) -> Tensor:
        x = cast("Tensor", self.norm(pieces[0]))
        return F.pad(x, (0, self.ones), value=1.0) if self.ones else x


class BlockEmbeddings(Embeddings):
    """Embeddings with a bias of the output layer, or without the vector that is added to all of them."""

    def __init__(
        self, source_vocab_size: int, target_vocab_size: int, *, size: int, tie: Tying, bias: bool, output_bias: bool
    ) -> None:
        super().__init__(source_vocab_size, target_vocab_size, size=size, tie=tie)
        if not bias:
            del self.bias
            self.register_buffer("bias", torch.zeros(size), persistent=False)
        self.output_bias = nn.Parameter(torch.zeros(target_vocab_size)) if output_bias else None

    @property
    def softmax_table(self) -> Tensor:
        """[V_target, E], with an output bias [V_target, E + BIAS_COLUMNS]"""
        table = self.target_table if self.softmax is None else self.softmax
        if self.output_bias is None or table.size(1) > self.bias.numel():  # `use_softmax_table` has given all columns
            return table
        columns = (self.output_bias / BIAS_COLUMNS).unsqueeze(1).expand(-1, BIAS_COLUMNS)
        return torch.cat([table, columns.to(table.dtype)], 1)
