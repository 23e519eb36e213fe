"""Two-step recurrent networks: a second cell reads a context after the first has read the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from nmt.cells import Cell, DroppedCell, select_state
from nmt.models.attention import AdditiveAttention, AttentionMemory, AttentionQuery
from nmt.ops.conditional import Aligned, Attended, Level, attended_sequence, one_to_one_sequence
from nmt.ops.recurrence import live_rows, time_order

AnyCell = Cell[Any] | DroppedCell[Any]


class MakeCell(Protocol):
    """How a model makes its cells: unit, width, layer norm and options are already chosen."""

    def __call__(self, input_size: int) -> Cell[Any]: ...


class AttentionStep(NamedTuple):
    """One time step of N rows."""

    output: Tensor
    """[N, H]"""
    context: Tensor
    """[N, M]"""
    state: Any
    """state after the second cell"""
    weights: tuple[Tensor, ...]
    """[B, G, K, S] attention weights of each level, N = B * K"""


class AttentionSequence(NamedTuple):
    """T time steps of B sentences."""

    outputs: Tensor
    """[B, T, H]"""
    contexts: Tensor
    """[B, T, M]"""
    weights: Tensor
    """[B, G, T, S] attention weights"""
    last: Any
    """state after the last time step"""


def masked(live: Tensor | None, new: Any, old: Any) -> Any:
    """The state `new` in the rows where `live` [B] is true, or in all if it is None; `old` in the others."""
    return new if live is None else select_state(live, new, old)


def levels_of(levels: Sequence[tuple[AttentionQuery, AnyCell]]) -> list[Level] | None:
    """The parts that kernels need of attentions and the cells above them; None for an unknown cell."""
    found = []
    for attention, higher in levels:
        unit, context = higher.unit(), higher.projection()
        if unit is None or context is None:
            return None
        found.append(Level(attention.level(context), unit))
    return found


def attended(
    lower: AnyCell, levels: list[Level] | None, inputs: Tensor, memory: AttentionMemory, state: Any, mask: Tensor | None
) -> Attended | None:
    """The steps of a cell and levels above it by kernels; None where there are none."""
    unit = lower.unit()
    if unit is None or levels is None:
        return None
    return attended_sequence(unit, levels, inputs, memory=memory.attended, state=tuple(state), mask=mask)


class AttentionRNN(nn.Module):
    """s = lower(h', x_t); c_t = attention(s); h = higher(s, c_t), with own weights in each cell.

    The complete state goes through both cells; where the mask is 0 both keep the state they got.
    """

    def __init__(
        self, make_cell: MakeCell, input_size: int, memory_size: int, *, heads: int = 1, layer_norm: bool = False
    ) -> None:
        super().__init__()
        self.lower = make_cell(input_size)
        self.higher = make_cell(memory_size)
        hidden_size = self.lower.hidden_size
        self.attention = AdditiveAttention(hidden_size, memory_size, heads=heads, layer_norm=layer_norm)

    @property
    def heads(self) -> int:
        """G, heads of the attention."""
        return self.attention.heads

    def prepare(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        """What the decoder attends to, from memory [B, S, M] and mask [B, S]."""
        return self.attention.prepare(memory, mask)

    def sequence(
        self, x: Tensor, memory: AttentionMemory, state: Any | None = None, mask: Tensor | None = None
    ) -> AttentionSequence:
        """Run over x [B, T, D] from `state` (None: zeros); mask [B, T] is true at words."""
        if state is None:
            state = self.lower.initial_state(x.size(0), like=x)
        lower, higher = self.lower.for_batch(x), self.higher.for_batch(x)
        inputs = lower.project(x)
        levels = levels_of([(self.attention, higher)])
        found = attended(lower, levels, inputs, memory, state, mask)
        if found is None:
            found = self._written_out(lower, higher, inputs, memory, state, mask)
        return AttentionSequence(found.outputs, found.contexts, found.weights, type(state)(*found.last))

    def _written_out(
        self, lower: AnyCell, higher: AnyCell, inputs: Tensor, memory: AttentionMemory, state: Any, mask: Tensor | None
    ) -> Attended:
        """`sequence` from the input products [B, T, kH] of the lower cell, one step after the other."""
        outputs, contexts, weights = [], [], []
        for projected, live in zip(inputs.unbind(1), live_rows(mask, length=inputs.size(1)), strict=True):
            between = masked(live, lower.step(projected, state), state)
            context, weight = self.attention.attend(lower.output(between).unsqueeze(1), memory)
            context = context.squeeze(1)
            state = masked(live, higher.step(higher.project(context), between), between)
            outputs.append(higher.output(state))
            contexts.append(context)
            weights.append(weight)
        return Attended(torch.stack(outputs, 1), torch.stack(contexts, 1), torch.cat(weights, 2), tuple(state))

    def step(self, x: Tensor, memory: AttentionMemory, state: Any) -> AttentionStep:
        """One time step of x [N, D], N = B * K rows, sentence-major, over the memory of B sentences."""
        between = self.lower.search_step(self.lower.project(x), state)
        query = self.lower.output(between).unflatten(0, (memory.keys.size(0), -1))  # [B, K, H]
        context, weights = self.attention.attend(query, memory)
        context = context.flatten(0, 1)  # [N, M]
        state = self.higher.search_step(self.higher.project(context), between)
        return AttentionStep(self.higher.output(state), context, state, (weights,))


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
        if found is None:
            found = self._written_out(lower, higher, inputs, contexts, state, mask, reverse=reverse)
        return found.outputs, type(state)(*found.last)

    def _written_out(
        self,
        lower: AnyCell,
        higher: AnyCell,
        inputs: Tensor,
        contexts: Tensor,
        state: Any,
        mask: Tensor | None,
        *,
        reverse: bool,
    ) -> Aligned:
        """`sequence` from the input products [B, T, kH] of both cells, one step after the other."""
        projected, context = inputs.unbind(1), contexts.unbind(1)
        live = live_rows(mask, length=len(projected))
        hidden = []
        for t in time_order(len(projected), reverse=reverse):
            between = masked(live[t], lower.step(projected[t], state), state)
            state = masked(live[t], higher.step(context[t], between), between)
            hidden.append(higher.output(state))
        if reverse:
            hidden.reverse()
        return Aligned(torch.stack(hidden, 1), tuple(state))

    def step(self, x: Tensor, memory: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Output [N, H] and state after x [N, D] and its memory vector [N, M]."""
        between = self.lower.search_step(self.lower.project(x), state)
        state = self.higher.search_step(self.higher.project(memory), between)
        return self.higher.output(state), state
