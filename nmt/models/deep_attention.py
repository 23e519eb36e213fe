"""A recurrent network that attends several times in each step: deep attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from nmt.cells import Cell
from nmt.models.attention import AdditiveAttention, AttentionMemory, AttentionQuery
from nmt.models.conditional import AnyCell, AttentionSequence, AttentionStep, MakeCell, attended, levels_of, masked
from nmt.ops.conditional import Attended
from nmt.ops.recurrence import live_rows

AnyLevel = tuple[AttentionQuery, AnyCell]
"""Attention and cell of a level, as they run over one batch."""


class DeepAttentionRNN(nn.Module):
    """s = lower(h', x_t); in each level l: c_l = attention_l(s), s = higher_l(s, c_l); h = s.

    From "Neural Machine Translation with Deep Attention" (Zhang et al., IEEE TPAMI 2018). The levels have their own
    cells, queries and scores and share one memory, whose keys the first level computes. Where the mask is 0 all cells
    keep the state they got. With one level it is an `AttentionRNN`.

    The loop over time runs by kernels where that of an `AttentionRNN` does. In search, where steps come one by one,
    each attention and without layer norm each cell are C kernels on a CPU.
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
        self.higher = nn.ModuleList(make_cell(memory_size) for _ in range(levels))
        size = self.lower.hidden_size
        self.attentions = nn.ModuleList(
            (AttentionQuery if level else AdditiveAttention)(size, memory_size, heads=heads, layer_norm=layer_norm)
            for level in range(levels)
        )

    @property
    def levels(self) -> list[tuple[AttentionQuery, Cell[Any]]]:
        """Attention and cell of each level."""
        return cast("list[tuple[AttentionQuery, Cell[Any]]]", list(zip(self.attentions, self.higher, strict=True)))

    @property
    def heads(self) -> int:
        """G, heads of each attention."""
        return self.levels[0][0].heads

    def prepare(self, memory: Tensor, mask: Tensor) -> AttentionMemory:
        """What all levels attend to, from memory [B, S, M] and mask [B, S]."""
        return cast("AdditiveAttention", self.attentions[0]).prepare(memory, mask)

    def sequence(
        self, x: Tensor, memory: AttentionMemory, state: Any | None = None, mask: Tensor | None = None
    ) -> AttentionSequence:
        """Run over x [B, T, D] from `state` (None: zeros); mask [B, T] is true at words.

        Contexts [B, T, D' * M] and weights [B, D' * G, T, S] of the D' levels stand side by side.
        """
        if state is None:
            state = self.lower.initial_state(x.size(0), like=x)
        lower = self.lower.for_batch(x)
        levels = [(attention, higher.for_batch(x)) for attention, higher in self.levels]
        inputs = lower.project(x)
        found = attended(lower, levels_of(levels), inputs, memory, state, mask)
        if found is None:
            found = _written_out(lower, levels, inputs, memory, state, mask)
        return AttentionSequence(found.outputs, found.contexts, found.weights, type(state)(*found.last))

    def step(self, x: Tensor, memory: AttentionMemory, state: Any) -> AttentionStep:
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
        return AttentionStep(cell.output(state), torch.cat(contexts, -1), state, tuple(weights))


def _written_out(
    lower: AnyCell,
    levels: Sequence[AnyLevel],
    inputs: Tensor,
    memory: AttentionMemory,
    state: Any,
    mask: Tensor | None,
) -> Attended:
    """The sequence from the input products [B, T, kH] of the lower cell, one step after the other."""
    outputs, contexts, weights = [], [], []
    for projected, live in zip(inputs.unbind(1), live_rows(mask, length=inputs.size(1)), strict=True):
        state = masked(live, lower.step(projected, state), state)
        cell = lower
        for attention, higher in levels:
            context, weight = attention.attend(cell.output(state).unsqueeze(1), memory)
            state = masked(live, higher.step(higher.project(context.squeeze(1)), state), state)
            cell = higher
            contexts.append(context)
            weights.append(weight)
        outputs.append(cell.output(state))
    by_time = torch.cat(contexts, 1).unflatten(1, (inputs.size(1), -1)).flatten(2)
    by_level = [torch.cat(weights[level :: len(levels)], 2) for level in range(len(levels))]
    return Attended(torch.stack(outputs, 1), by_time, torch.cat(by_level, 1), tuple(state))
