"""The inner values of a unit over sequences: its states, its gates, and how much of each word a state holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.cells.base import Cell, select_state
from nmt.ops.recurrence import live_rows, time_order
from nmt.ops.unit import Update


class Trace(NamedTuple):
    """T time steps of B sequences, in the order of the input."""

    states: Any
    """A state of the unit whose tensors are [B, T, H]: what it carries after each step."""
    gates: dict[str, Tensor]
    """[B, T, H] each, by the names in the unit's equation; 0 at padding. Empty for a unit that names no gates."""
    update: Update | None
    """[B, T, H] each; at padding nothing is written and everything is kept. None for a unit without such an update."""
    reverse: bool
    """Whether it ran from the last time step to the first."""

    def memory(self) -> Tensor | None:
        """The memory weights [B, T, T], see `memory_weights`; None for a unit without such an update."""
        if self.update is None:
            return None
        return memory_weights(self.update.input, self.update.forget, reverse=self.reverse)


@torch.no_grad()
def trace(
    cell: Cell[Any], x: Tensor, state: Any | None = None, mask: Tensor | None = None, *, reverse: bool = False
) -> Trace:
    """Run `cell` over x [B, T, D], T > 0, and keep the states and gates of each step.

    The arguments are the same as for `Cell.layer`. `cell.output(states)` equals the outputs of `Cell.layer` except for
    rounding, because the unit's equation runs here, not its kernels.
    """
    inputs = cell.project(x).unbind(1)
    state = cell.initial_state(len(x), like=inputs[0]) if state is None else state
    live = live_rows(mask, length=len(inputs))
    steps: dict[int, tuple[Any, dict[str, Tensor], Update | None]] = {}
    for t in time_order(len(inputs), reverse=reverse):
        gates, update = cell.gate_values(inputs[t], state)
        new, rows = cell.step(inputs[t], state), live[t]
        if rows is not None:
            new = select_state(rows, new, state)
            gates = {name: torch.where(rows, gate, 0.0) for name, gate in gates.items()}
            if update is not None:
                update = Update(update.value, torch.where(rows, update.input, 0), torch.where(rows, update.forget, 1))
        state = new
        steps[t] = state, gates, update
    states, gates_of, updates = zip(*(steps[t] for t in range(len(inputs))), strict=True)
    return Trace(
        type(state)(*(torch.stack(parts, 1) for parts in zip(*states, strict=True))),
        {name: torch.stack([gates[name] for gates in gates_of], 1) for name in gates_of[0]},
        None if updates[0] is None else Update(*(torch.stack(parts, 1) for parts in zip(*updates, strict=True))),
        reverse,
    )


def word_weights(inputs: Tensor, forgets: Tensor, *, reverse: bool = False) -> Iterator[tuple[int, Tensor]]:
    """Yield each time step t, in the order of computation, with the weights of all words in the memory then [B, T, H].

    inputs and forgets [B, T, H] come from an `Update`. The weight of word k is, in each dimension, i_k times the
    product of f_(k+1), ..., f_t; it is 0 for words that have not been read yet. So the memory is the sum over k of the
    weight times the value of word k, plus the first state times all f up to t.
    """
    weights = torch.zeros_like(inputs)
    for t in time_order(inputs.size(1), reverse=reverse):
        weights = weights * forgets[:, t : t + 1]
        weights[:, t] = inputs[:, t]
        yield t, weights


def memory_weights(inputs: Tensor, forgets: Tensor, *, reverse: bool = False) -> Tensor:
    """How much of word k (column) is in the state after word t (row): [B, T, T].

    The mean over the dimensions of the absolute value of i_k * f_(k+1) * ... * f_t (see `word_weights`), after the
    structure analysis of Zhang and Sennrich, "A Lightweight Recurrent Network for Sequence Modeling" (ACL 2019), where
    the LRN is h_t = sum over k of i_k * (f_(k+1) * ... * f_t) * v_k. The value v_k that a word writes is not part of
    the weight. In units such as GRU and LSTM the value also depends on the previous state; there the weights refer to
    the value that was written when word k was read. With `reverse` the words after t have been read.
    """
    rows = inputs.new_zeros(len(inputs), inputs.size(1), inputs.size(1))
    for t, weights in word_weights(inputs, forgets, reverse=reverse):
        rows[:, t] = weights.abs().mean(-1)
    return rows
