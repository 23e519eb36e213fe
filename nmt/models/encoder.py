"""Encoders: a bidirectional first layer, alone or below forward layers, or layers that alternate in direction."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

from nmt.cells import Cell, select_state
from nmt.cells.base import both_directions
from nmt.models.parts import Dropout, LayerNorm, Linear
from nmt.ops.recurrence import live_rows, time_order
from nmt.ops.sequence import one_to_one_sequence


class MakeCell(Protocol):
    """How a model makes its cells: unit, width, layer norm and options are already chosen."""

    def __call__(self, input_size: int) -> Cell[Any]: ...


def masked(live: Tensor | None, new: Any, old: Any) -> Any:
    """The state `new` in the rows where `live` [B] is true, or in all if it is None; `old` in the others."""
    return new if live is None else select_state(live, new, old)


class OneToOneRNN(nn.Module):
    """s = lower(h', x_t); h = higher(s, m_t): the context is the memory vector of the same time step."""

    def __init__(self, make_cell: MakeCell, input_size: int, memory_size: int) -> None:
        super().__init__()
        self.lower = make_cell(input_size)
        self.higher = make_cell(memory_size)

    def sequence(
        self, x: Tensor, memory: Tensor, state: Any | None = None, mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, Any]:
        """Outputs [B, T, H] in input order and the last state, from x [B, T, D] and memory [B, T, M].

        `reverse` runs from the last time step to the first.
        """
        if state is None:
            state = self.lower.initial_state(x.size(0), like=x)
        lower, higher = self.lower.for_batch(x), self.higher.for_batch(x)
        inputs, contexts = lower.project(x), higher.project(memory)
        first, second, found = lower.unit(), higher.unit(), None
        if first is not None and second is not None:
            found = one_to_one_sequence(
                first, second, inputs, context=contexts, state=tuple(state), mask=mask, reverse=reverse
            )
        if found is not None:
            return found[0], type(state)(*found[1])
        projected, context = inputs.unbind(1), contexts.unbind(1)
        live = live_rows(mask, length=len(projected))
        hidden = []
        for t in time_order(len(projected), reverse=reverse):
            between = masked(live[t], lower.step(projected[t], state), state)
            state = masked(live[t], higher.step(context[t], between), between)
            hidden.append(higher.output(state))
        if reverse:
            hidden.reverse()
        return torch.stack(hidden, 1), state

    def step(self, x: Tensor, memory: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Output [N, H] and state after x [N, D] and its memory vector [N, M]."""
        between = self.lower.search_step(self.lower.project(x), state)
        state = self.higher.search_step(self.higher.project(memory), between)
        return self.higher.output(state), state


class EncoderOutput(NamedTuple):
    """The result of a recurrent layer, or of a whole encoder, for B sentences of S positions."""

    outputs: Tensor  # [B, S, width], also at padding
    last: Tensor  # [B, width], what the initial states of the decoder are made of


class Encoder(nn.Module):
    """A recurrent layer, or a stack of them, over embedded source words."""

    output_size: int
    """Width of the outputs."""
    last_size: int
    """Width of what the initial states of the decoder are made of."""

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        """x [B, S, D], mask [B, S] true at words."""
        raise NotImplementedError


class Forward(Encoder):
    """One cell from the first word to the last."""

    def __init__(self, make_cell: MakeCell, input_size: int) -> None:
        super().__init__()
        self.cell = make_cell(input_size)
        self.output_size = self.last_size = self.cell.hidden_size

    def forward(self, x: Tensor, mask: Tensor, *, begun: Tensor | None = None) -> EncoderOutput:
        """`begun`: what is returned as the last state is that after so many words [B]."""
        outputs, last = self.cell.for_batch(x).layer(x, mask=mask)
        if begun is None:
            return EncoderOutput(outputs, self.cell.output(last))
        return EncoderOutput(outputs, outputs[torch.arange(len(begun), device=begun.device), begun - 1])


class Bidirectional(Encoder):
    """Two independent directions, side by side. Running backward, the state stays zero over padding."""

    def __init__(self, make_cell: MakeCell, input_size: int) -> None:
        super().__init__()
        self.forward_rnn = make_cell(input_size)
        self.backward_rnn = make_cell(input_size)
        self.output_size = self.last_size = 2 * self.forward_rnn.hidden_size

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        cells = self.forward_rnn.for_batch(x), self.backward_rnn.for_batch(x)
        outputs, states = both_directions(*cells, x, mask)
        last = [cell.output(state) for cell, state in zip(cells, states, strict=True)]
        return EncoderOutput(outputs, torch.cat(last, -1))


def first_layer(make_cell: MakeCell, input_size: int, *, direction: str, context_aware: bool) -> Encoder:
    """What reads the words, as `model.encoder_direction` and `model.context_aware_encoder` say."""
    if direction == "forward":
        return Forward(make_cell, input_size)
    return (ContextAware if context_aware else Bidirectional)(make_cell, input_size)


class ContextAware(Encoder):
    """The backward direction reads each word and then the forward state there (Zhang et al., 2017)."""

    def __init__(self, make_cell: MakeCell, input_size: int) -> None:
        super().__init__()
        self.forward_rnn = make_cell(input_size)
        self.output_size = self.last_size = self.forward_rnn.hidden_size
        self.backward_rnn = OneToOneRNN(make_cell, input_size, self.output_size)

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        ahead, _ = self.forward_rnn.for_batch(x).layer(x, mask=mask)
        outputs, last = self.backward_rnn.sequence(x, ahead, mask=mask, reverse=True)
        return EncoderOutput(outputs, self.backward_rnn.higher.output(last))


class Alternating(Encoder):
    """A forward cell, and above it layers of two cells a step that run backward and forward in turn.

    Each of these reads the words and then what the layer below put out there (Zhang et al., IEEE TPAMI 2018); with one
    of them it is `ContextAware`. There are no residual connections, and no dropout between the layers.
    """

    def __init__(self, make_cell: MakeCell, input_size: int, *, layers: int) -> None:
        super().__init__()
        self.first = Forward(make_cell, input_size)
        self.output_size = self.last_size = self.first.output_size
        self.above = nn.ModuleList(OneToOneRNN(make_cell, input_size, self.output_size) for _ in range(layers))

    def forward(self, x: Tensor, mask: Tensor) -> EncoderOutput:
        outputs, last = self.first(x, mask)
        for index, layer in enumerate(cast("list[OneToOneRNN]", list(self.above))):
            outputs, state = layer.sequence(x, outputs, mask=mask, reverse=index % 2 == 0)
            last = layer.higher.output(state)
        return EncoderOutput(outputs, last)


class ResidualLayer(nn.Module):
    """x + dropout(W y + b), then layer norm: how a deep stack takes in the outputs y of a layer."""

    def __init__(self, branch_size: int, size: int, *, layer_norm: bool, dropout: float) -> None:
        super().__init__()
        self.branch = Linear([branch_size], size)
        self.norm = LayerNorm(size) if layer_norm else None
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """x [..., E], y [..., branch_size] -> [..., E]."""
        x = x + self.dropout(self.branch(y))
        return x if self.norm is None else self.norm(x)


class DeepEncoder(Encoder):
    """A layer that may be bidirectional, and forward layers above it, each added to its input through a linear map.

    Where the embedding width E differs from the output width H, a linear map and a layer norm (also
    without layer norm elsewhere) bring the sum to H.
    """

    def __init__(
        self,
        make_cell: MakeCell,
        embedding_size: int,
        *,
        output_size: int,
        layers: int,
        direction: str,
        context_aware: bool,
        layer_norm: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        first = first_layer(make_cell, embedding_size, direction=direction, context_aware=context_aware)
        above = [Forward(make_cell, embedding_size) for _ in range(layers - 1)]
        self.layers = nn.ModuleList([first, *above])
        self.residuals = nn.ModuleList(
            ResidualLayer(layer.output_size, embedding_size, layer_norm=layer_norm, dropout=dropout)
            for layer in (first, *above)
        )
        self.last_size = above[-1].last_size if above else first.last_size
        self.output_size = output_size
        self.widen = Linear([embedding_size], output_size) if embedding_size != output_size else None
        self.widen_norm = LayerNorm(output_size) if embedding_size != output_size else None

    def forward(self, x: Tensor, mask: Tensor, *, begun: Tensor | None = None) -> EncoderOutput:
        """`begun`: see `Forward`; only where all layers run forward."""
        last, more = x, {} if begun is None else {"begun": begun}
        for layer, residual in zip(self.layers, self.residuals, strict=True):
            outputs, last = layer(x, mask, **more)
            x = residual(x, outputs)
        if self.widen is not None and self.widen_norm is not None:
            x = self.widen_norm(self.widen(x))
        return EncoderOutput(x, last)
