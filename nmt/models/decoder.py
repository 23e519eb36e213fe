"""Decoders: layers over the words so far, the first of which attends to the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from nmt.cells import Cell
from nmt.errors import ConfigError
from nmt.models.attention import AdditiveAttention, AttentionMemory, AttentionQuery
from nmt.models.encoder import MakeCell, OneToOneRNN, ResidualLayer, masked
from nmt.ops.recurrence import live_rows
from nmt.ops.sequence import Attended, attended_sequence

Memory = AttentionMemory | None
"""What a decoder layer attends to; None where it does not attend."""

Memories = tuple[Memory, ...]
"""One for each decoder layer; the first always attends."""

States = tuple[Any, ...]
"""One recurrent state for each decoder layer."""

Weights = tuple[Tensor, ...]
"""Weights [B, G, T, S] of each attention of a decoder, lowest layer and level first; of a step [B, G, K, S]."""

Pieces = tuple[Tensor, ...]
"""What the readout takes."""

Whole = tuple[Pieces, States, Weights]


class LayerOutput(NamedTuple):
    """The result of a decoder layer, for N rows or for whole sequences [B, T]."""

    hidden: Tensor  # [..., H]
    context: Tensor
    """[..., M], its own or the one it was given; of deep attention all of them side by side"""
    state: Any
    """after the last time step"""
    weights: Weights = ()
    """of its own attentions, if it has any"""


class AttendingRNN(nn.Module):
    """s = lower(h', x_t); in each level l: c_l = attention_l(s), s = higher_l(s, c_l); h = s.

    Each cell has its own weights. The complete state goes through all of them; where the mask is 0 all keep the state
    they got. The loop over time runs by kernels if units and device have them; in search, where steps come one by one,
    each attention and without layer norm each cell are C kernels on a CPU.
    """

    lower: Cell[Any]
    levels: list[tuple[AttentionQuery, Cell[Any]]]
    """Attention and cell of each level."""

    def prepare(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        """What all levels attend to, from memory [B, S, M] and mask [B, S]; the first has its keys."""
        return cast("AdditiveAttention", self.levels[0][0]).prepare(memory, mask)

    def sequence(
        self, x: Tensor, memory: AttentionMemory, state: Any | None = None, mask: Tensor | None = None
    ) -> Attended:
        """Run over x [B, T, D] from `state` (None: zeros); mask [B, T] is true at words.

        Contexts [B, T, D' * M] and weights [B, D' * G, T, S] of the D' levels stand side by side.
        """
        if state is None:
            state = self.lower.initial_state(x.size(0), like=x)
        lower = self.lower.for_batch(x)
        levels = [(attention, higher.for_batch(x)) for attention, higher in self.levels]
        inputs = lower.project(x)
        found, first = None, lower.unit()
        known = [  # what kernels need
            (attention.level(product), unit)
            for attention, higher in levels
            if (unit := higher.unit()) is not None and (product := higher.projection()) is not None
        ]
        if first is not None and len(known) == len(levels) and memory.penalty.size(2) == 1:
            found = attended_sequence(first, known, inputs, memory=memory.attended, state=tuple(state), mask=mask)
        if found is not None:
            return found._replace(last=type(state)(*found.last))
        outputs, contexts, weights = [], [], []
        rows = zip(inputs.unbind(1), live_rows(mask, length=inputs.size(1)), strict=True)
        for place, (projected, live) in enumerate(rows):
            state = masked(live, lower.step(projected, state), state)
            cell = lower
            for attention, higher in levels:
                context, weight = attention.attend(cell.output(state).unsqueeze(1), memory.at(place))
                state = masked(live, higher.step(higher.project(context.squeeze(1)), state), state)
                cell = higher
                contexts.append(context)
                weights.append(weight)
            outputs.append(cell.output(state))
        by_time = torch.cat(contexts, 1).unflatten(1, (inputs.size(1), -1)).flatten(2)
        by_level = [torch.cat(weights[level :: len(levels)], 2) for level in range(len(levels))]
        return Attended(torch.stack(outputs, 1), by_time, torch.cat(by_level, 1), state)

    def step(self, x: Tensor, memory: AttentionMemory, state: Any) -> LayerOutput:
        """One time step of x [N, D], N = B * K rows, sentence-major, over the memory of B sentences."""
        sentences, cell = memory.keys.size(0), self.lower
        state = cell.search_step(cell.project(x), state)
        contexts, weights = [], []
        for attention, higher in self.levels:
            query = cell.output(state).unflatten(0, (sentences, -1))  # [B, K, H]
            context, weight = attention.attend(query, memory)
            contexts.append(context.flatten(0, 1))  # [N, M]
            weights.append(weight)
            state = higher.search_step(higher.project(contexts[-1]), state)
            cell = higher
        context = contexts[0] if len(contexts) == 1 else torch.cat(contexts, -1)
        return LayerOutput(cell.output(state), context, state, tuple(weights))


class AttentionRNN(AttendingRNN):
    """One level."""

    def __init__(
        self, make_cell: MakeCell, input_size: int, memory_size: int, *, heads: int = 1, layer_norm: bool = False
    ) -> None:
        super().__init__()
        self.lower = make_cell(input_size)
        self.higher = make_cell(memory_size)
        hidden_size = self.lower.hidden_size
        self.attention = AdditiveAttention(hidden_size, memory_size, heads=heads, layer_norm=layer_norm)
        self.levels = [(self.attention, self.higher)]


class DeepAttentionRNN(AttendingRNN):
    """Several levels: deep attention.

    From "Neural Machine Translation with Deep Attention" (Zhang et al., IEEE TPAMI 2018). The levels have their own
    cells, queries and scores and share one memory, whose keys the first level computes.
    """

    def __init__(
        self,
        make_cell: MakeCell,
        input_size: int,
        memory_size: int,
        *,
        levels: int,
        heads: int = 1,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.lower = make_cell(input_size)
        cells = [make_cell(memory_size) for _ in range(levels)]
        size = self.lower.hidden_size
        attentions = [
            (AttentionQuery if level else AdditiveAttention)(size, memory_size, heads=heads, layer_norm=layer_norm)
            for level in range(levels)
        ]
        self.higher, self.attentions = nn.ModuleList(cells), nn.ModuleList(attentions)
        self.levels = list(zip(attentions, cells, strict=True))


class DecoderLayer(nn.Module):
    """A recurrent layer that reads an input and the context of the layers below, or attends by itself."""

    state_size: int
    """P, the width of the packed state."""

    def prepare(self, memory: Tensor, mask: Tensor) -> Memory:
        """What this layer attends to, from memory [B, S, M] and mask [B, S]; None if it does not attend."""
        return None

    def unpack_state(self, packed: Tensor) -> Any:
        """The state of this layer from packed [B, P]."""
        raise NotImplementedError

    def sequence(self, x: Tensor, context: Tensor, memory: Memory, state: Any, mask: Tensor) -> LayerOutput:
        """Whole sequences x [B, T, D], context [B, T, M] (not read by a layer that attends), mask [B, T]."""
        raise NotImplementedError

    def step(self, x: Tensor, context: Tensor, memory: Memory, state: Any) -> LayerOutput:
        """One time step of x [N, D], context [N, M]."""
        raise NotImplementedError


class AttendingLayer(DecoderLayer):
    """Attends to the source itself, once or several times in each step."""

    def __init__(self, rnn: AttendingRNN) -> None:
        super().__init__()
        self.rnn = rnn
        self.state_size = rnn.lower.state_size

    def prepare(self, memory: Tensor, mask: Tensor) -> Memory:
        return self.rnn.prepare(memory, mask)

    def unpack_state(self, packed: Tensor) -> Any:
        return self.rnn.lower.unpack_state(packed)

    def sequence(self, x: Tensor, context: Tensor, memory: Memory, state: Any, mask: Tensor) -> LayerOutput:
        assert memory is not None
        outputs, contexts, weights, last = self.rnn.sequence(x, memory, state, mask)
        return LayerOutput(outputs, contexts, last, weights.split(self.rnn.levels[0][0].heads, 1))

    def step(self, x: Tensor, context: Tensor, memory: Memory, state: Any) -> LayerOutput:
        assert memory is not None
        return self.rnn.step(x, memory, state)


class ContextLayer(DecoderLayer):
    """Reads the context of the layers below in a separate second step."""

    def __init__(self, make_cell: MakeCell, input_size: int, memory_size: int) -> None:
        super().__init__()
        self.rnn = OneToOneRNN(make_cell, input_size, memory_size)
        self.state_size = self.rnn.lower.state_size

    def unpack_state(self, packed: Tensor) -> Any:
        return self.rnn.lower.unpack_state(packed)

    def sequence(self, x: Tensor, context: Tensor, memory: Memory, state: Any, mask: Tensor) -> LayerOutput:
        outputs, last = self.rnn.sequence(x, context, state, mask)
        return LayerOutput(outputs, context, last)

    def step(self, x: Tensor, context: Tensor, memory: Memory, state: Any) -> LayerOutput:
        hidden, state = self.rnn.step(x, context, state)
        return LayerOutput(hidden, context, state)


class ConcatenatingLayer(DecoderLayer):
    """A single cell on the input and the context of the layers below, side by side."""

    def __init__(self, make_cell: MakeCell, input_size: int, memory_size: int) -> None:
        super().__init__()
        self.cell = make_cell(input_size + memory_size)
        self.state_size = self.cell.state_size

    def unpack_state(self, packed: Tensor) -> Any:
        return self.cell.unpack_state(packed)

    def sequence(self, x: Tensor, context: Tensor, memory: Memory, state: Any, mask: Tensor) -> LayerOutput:
        outputs, last = self.cell.for_batch(x).layer(torch.cat([x, context], -1), state, mask)
        return LayerOutput(outputs, context, last)

    def step(self, x: Tensor, context: Tensor, memory: Memory, state: Any) -> LayerOutput:
        state = self.cell.search_step(self.cell.project(torch.cat([x, context], -1)), state)
        return LayerOutput(self.cell.output(state), context, state)


class Decoder(nn.Module):
    """The interface of decoders to a model: layers with states, some of which attend."""

    def __init__(self, layers: Sequence[DecoderLayer]) -> None:
        super().__init__()
        self.layers = cast("Sequence[DecoderLayer]", nn.ModuleList(layers))

    @property
    def state_sizes(self) -> list[int]:
        """Width of the packed state of each layer."""
        return [layer.state_size for layer in self.layers]

    def prepare(self, memory: Tensor, mask: Tensor) -> Memories:
        """What the layers attend to, from memory [B, S, M] and mask [B, S]."""
        return tuple(layer.prepare(memory, mask) for layer in self.layers)

    def unpack_states(self, packed: Sequence[Tensor]) -> States:
        """The states of the layers from one packed tensor [B, P] for each."""
        return tuple(layer.unpack_state(state) for layer, state in zip(self.layers, packed, strict=True))

    def with_room(self, states: States, words: int) -> States:
        """The states after `words` words for steps that are recorded as graphs, which must seldom change shapes.

        Those of recurrent units never do.
        """
        return states

    @property
    def tells_attention(self) -> bool:
        """Whether it has the two functions that return weights; one of a plugin may have the other two alone."""
        return type(self).attending_step is not Decoder.attending_step

    def sequence(self, x: Tensor, memories: Memories, states: States, mask: Tensor) -> Pieces:
        """What the readout takes [B, T, ...], from inputs x [B, T, E] and mask [B, T]."""
        return self.attending_sequence(x, memories, states, mask)[0]

    def attending_sequence(self, x: Tensor, memories: Memories, states: States, mask: Tensor) -> tuple[Pieces, Weights]:
        """As `sequence`, and the attention weights."""
        pieces, _, weights = self.whole_sequence(x, memories, states, mask, tells=True)
        return pieces, weights

    def whole_sequence(self, x: Tensor, memories: Memories, states: States, mask: Tensor, *, tells: bool) -> Whole:
        """As `sequence`, the states after the last word of each row, and, where `tells` asks for them, the weights."""
        raise ConfigError(f"the decoder {type(self).__name__} does not report its attention")

    def step(self, x: Tensor, memories: Memories, states: States) -> tuple[Pieces, States]:
        """What the readout takes [N, ...] after one more input x [N, E], and the new states."""
        return self.attending_step(x, memories, states)[:2]

    def attending_step(self, x: Tensor, memories: Memories, states: States) -> tuple[Pieces, States, Weights]:
        """As `step`, and the attention weights."""
        raise ConfigError(f"the decoder {type(self).__name__} does not report its attention")


class ShallowDecoder(Decoder):
    """One attending layer. The readout takes its output, its contexts and the input embedding."""

    def __init__(self, layer: AttendingLayer) -> None:
        super().__init__([layer])

    @property
    def layer(self) -> AttendingLayer:
        """The only layer."""
        return cast("AttendingLayer", self.layers[0])

    def whole_sequence(self, x: Tensor, memories: Memories, states: States, mask: Tensor, *, tells: bool) -> Whole:
        output = self.layer.sequence(x, x, memories[0], states[0], mask)
        return (output.hidden, output.context, x), (output.state,), output.weights

    def attending_step(self, x: Tensor, memories: Memories, states: States) -> tuple[Pieces, States, Weights]:
        output = self.layer.step(x, x, memories[0], states[0])
        return (output.hidden, output.context, x), (output.state,), output.weights


class DeepDecoder(Decoder):
    """Layers whose outputs are added to their input through a linear map; the first one attends.

    The readout takes the sum and the context of the topmost layer that attends.
    """

    def __init__(
        self,
        layers: Sequence[DecoderLayer],
        *,
        hidden_size: int,
        embedding_size: int,
        layer_norm: bool,
        dropout: float,
    ) -> None:
        super().__init__(layers)
        self.residuals = nn.ModuleList(
            ResidualLayer(hidden_size, embedding_size, layer_norm=layer_norm, dropout=dropout) for _ in layers
        )

    def whole_sequence(self, x: Tensor, memories: Memories, states: States, mask: Tensor, *, tells: bool) -> Whole:
        context, after = x, []  # the first layer attends and takes none
        weights: list[Tensor] = []
        for layer, residual, memory, state in zip(self.layers, self.residuals, memories, states, strict=True):
            hidden, context, last, own = layer.sequence(x, context, memory, state, mask)
            after.append(last)
            x = residual(x, hidden)
            weights += own
        return (x, context), tuple(after), tuple(weights)

    def attending_step(self, x: Tensor, memories: Memories, states: States) -> tuple[Pieces, States, Weights]:
        context, after = x, []
        weights: list[Tensor] = []
        for layer, residual, memory, state in zip(self.layers, self.residuals, memories, states, strict=True):
            hidden, context, new, own = layer.step(x, context, memory, state)
            x = residual(x, hidden)
            after.append(new)
            weights += own
        return (x, context), tuple(after), tuple(weights)
