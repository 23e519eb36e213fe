"""What can be seen of a unit: its states are those of its sequence, its gates those of its equation, memory weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nmt.cells import Cell, HiddenState
from nmt.inspection.traces import memory_weights, trace, word_weights
from tests.cells.test_cell_sequence import CASES, MASKS, B, D, T, build, tensor

GATES = {
    "atr": ["i", "f"], "gru": ["z", "r"], "lrn": ["i", "f"], "lstm": ["i", "f", "o"], "min_gru": ["z"],
    "min_lstm": ["f", "i"], "olrn": ["i", "f", "o"], "rnn": [], "sru": ["f", "r"], "ssru": ["f"],
}  # fmt: skip
WITHOUT_MEMORY = ["rnn", "lrn-LRNOptions(tanh=True)", "olrn-OLRNOptions(tanh=True)"]
"""Units, or units with options, whose memory does not change element by element; and ATR with activation state."""


def has_memory(unit: str, options: Any) -> bool:
    known = unit in WITHOUT_MEMORY or f"{unit}-{options}" in WITHOUT_MEMORY
    return not known and getattr(options, "activation", "none") != "state"


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("mask_name", ["none", "right", "holes"])
@pytest.mark.parametrize(("unit", "options"), CASES)
def test_states_are_those_of_the_sequence(unit: str, options: Any, mask_name: str, reverse: bool) -> None:
    mask = None if MASKS[mask_name] is None else torch.tensor(MASKS[mask_name])
    for layer_norm in (False, True):
        cell = build(unit, options, layer_norm=layer_norm).float()
        x = tensor(B, T, D).float()
        for start in (None, cell.unpack_state(tensor(B, cell.state_size, seed=2).float())):
            found = trace(cell, x, start, mask, reverse=reverse)
            outputs, last = cell.layer(x, start, mask, reverse=reverse)
            torch.testing.assert_close(cell.output(found.states), outputs, rtol=0, atol=2e-6)
            end = 0 if reverse else T - 1
            for ours, wanted in zip(found.states, last, strict=True):
                torch.testing.assert_close(ours[:, end], wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("unit", "options"), CASES)
def test_the_equation_can_be_computed_from_the_gates(unit: str, options: Any) -> None:
    """Each of h and c from the gates by their names, as the docstring of the unit has it."""
    cell = build(unit, options, layer_norm=True)
    state = cell.unpack_state(tensor(B, cell.state_size, seed=2))
    x = cell.project(tensor(B, D))
    gates, update = cell.gate_values(x, state)
    new = cell.step(x, state)
    assert list(gates) == GATES[unit]
    assert all(bool(((gate > 0) & (gate < 1)).all()) for gate in gates.values())
    assert (update is not None) == has_memory(unit, options)
    if update is None:
        return
    torch.testing.assert_close(update.input * update.value + update.forget * state[-1], new[-1])
    i, f, o = {
        "gru": lambda: (1 - gates["z"], gates["z"], None),
        "min_gru": lambda: (gates["z"], 1 - gates["z"], None),
        "min_lstm": lambda: (*(gates[name] / (gates["f"] + gates["i"]) for name in "if"), None),
        "sru": lambda: (1 - gates["f"], gates["f"], None),
        "ssru": lambda: (1 - gates["f"], gates["f"], None),
        "olrn": lambda: (gates["o"] * gates["i"], gates["o"] * gates["f"], None),
        "lstm": lambda: (gates["i"], gates["f"], gates["o"]),
    }.get(unit, lambda: (gates["i"], gates["f"], None))()
    torch.testing.assert_close(update.input, i)
    torch.testing.assert_close(update.forget, f)
    if o is not None:
        written = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "identity": torch.Tensor.clone}
        wanted = o * written[options.output_activation](new.c)
        torch.testing.assert_close(new.h, wanted)
    if unit == "sru":
        x_h = x.chunk(4, -1)[3]
        torch.testing.assert_close(new.h, gates["r"] * new.c + (1 - gates["r"]) * x_h)


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("mask_name", ["none", "right", "holes"])
@pytest.mark.parametrize(("unit", "options"), [case for case in CASES if has_memory(*case.values)])
def test_a_memory_is_made_of_the_words(unit: str, options: Any, mask_name: str, reverse: bool) -> None:
    """In float64 nothing is missing: for LRN and ATR the values are products of the input alone."""
    cell, x = build(unit, options), tensor(B, T, D)
    mask = None if MASKS[mask_name] is None else torch.tensor(MASKS[mask_name])
    found = trace(cell, x, None, mask, reverse=reverse)
    assert found.update is not None
    value, inputs, forgets = found.update
    if unit == "lrn":
        assert torch.equal(value, cell.project(x).chunk(3, -1)[2])
    if unit == "atr":
        p = cell.project(x)
        assert torch.equal(value, torch.tanh(p) if options.activation == "candidate" else p)
    seen = 0
    for t, weights in word_weights(inputs, forgets, reverse=reverse):
        torch.testing.assert_close((weights * value).sum(1), found.states[-1][:, t], rtol=0, atol=1e-12)
        later = range(t) if reverse else range(t + 1, T)
        assert not weights[:, list(later)].any()
        seen += 1
    assert seen == T
    memory = found.memory()
    assert memory is not None
    assert memory.shape == (B, T, T)
    assert torch.equal(memory, memory.triu() if reverse else memory.tril()) and memory.any()
    if mask is not None:
        assert not memory.transpose(1, 2)[~mask.bool()].any()  # nothing is kept of padding


def test_weights_by_hand() -> None:
    """Two dimensions, one gate of them negative, whose sign does not cancel the other."""
    inputs = torch.tensor([[[0.5, -1.0], [0.2, 0.4], [1.0, 0.0]]])
    forgets = torch.tensor([[[0.9, 0.9], [0.5, 0.25], [0.1, -1.0]]])
    wanted = torch.tensor([[0.75, 0, 0], [(0.25 + 0.25) / 2, 0.3, 0], [(0.025 + 0.25) / 2, (0.02 + 0.4) / 2, 0.5]])
    torch.testing.assert_close(memory_weights(inputs, forgets)[0], wanted)
    flipped = memory_weights(inputs.flip(1), forgets.flip(1), reverse=True)[0]
    torch.testing.assert_close(flipped.flip(0, 1), wanted)


def test_gates_at_padding_are_zero() -> None:
    mask = torch.tensor(MASKS["holes"])
    found = trace(build("gru"), tensor(B, T, D), None, mask)
    for gate in found.gates.values():
        assert not gate[mask == 0].any()
        assert bool((gate[mask == 1] > 0).all())


class Plain(Cell[HiddenState]):
    """A unit of a plugin that names no gates."""

    def __init__(self) -> None:
        super().__init__(D, 3)
        self.gates = torch.nn.Linear(D, 3).double()

    def project(self, x: torch.Tensor) -> torch.Tensor:
        return self.gates(x)

    def step(self, projected: torch.Tensor, state: HiddenState) -> HiddenState:
        return HiddenState(torch.tanh(projected + state.h))


def test_a_unit_that_tells_nothing_has_states() -> None:
    cell, x = Plain(), tensor(B, T, D)
    found = trace(cell, x, mask=torch.tensor(MASKS["right"]))
    assert (found.gates, found.update, found.memory()) == ({}, None, None)
    torch.testing.assert_close(found.states.h, cell.layer(x, mask=torch.tensor(MASKS["right"]))[0])
