"""The sequence form of every unit against its own steps: masks, directions, initial states, options, precision."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import pytest
import torch
from torch import Tensor

from nmt.cells import Cell, select_state
from nmt.registry import CELLS

UNITS = ["atr", "gru", "lrn", "lstm", "min_gru", "min_lstm", "olrn", "rnn", "sru", "ssru"]
B, T, D, H = 5, 6, 4, 3

MASKS = {
    "none": None,
    "all": [[1, 1, 1, 1, 1, 1]] * B,
    "right": [[1] * n + [0] * (T - n) for n in (6, 4, 1, 3, 5)],
    "left": [[0] * (T - n) + [1] * n for n in (6, 4, 1, 3, 5)],
    "holes": [[1, 0, 1, 1, 0, 1], [0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 1]],
    "dead rows": [[0] * T, [1] * T, [0] * T, [1, 1, 0, 0, 0, 0], [0] * T],
}


def choices(unit: str) -> list[Any]:
    """The unit's default options and every one that differs in a single field that changes the recurrence."""
    options = CELLS.get(unit).Options
    hints = get_type_hints(options)
    result = [options()]
    for field in fields(options):
        values = [True] if hints[field.name] is bool else get_args(hints[field.name])
        result += [replace(options(), **{field.name: value}) for value in values if value != field.default]
    return result


CASES = [pytest.param(unit, options, id=f"{unit}-{options}") for unit in UNITS for options in choices(unit)]


def build(unit: str, options: Any = None, *, layer_norm: bool = False, seed: int = 0) -> Cell:
    """A cell with weights large enough to matter, biases and layer-norm parameters included."""
    generator = torch.Generator().manual_seed(seed)
    cell: Cell = CELLS.get(unit)(D, H, layer_norm=layer_norm, options=options).double()
    with torch.no_grad():
        for name, parameter in cell.named_parameters():
            noise = torch.empty_like(parameter).uniform_(-0.8, 0.8, generator=generator)
            parameter.copy_(1 + noise / 2 if name.endswith("scale") else noise)
    return cell


def tensor(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_steps(cell: Cell, x: Tensor, state: Any, mask: Tensor | None, *, reverse: bool) -> tuple[Tensor, Any]:
    """Project and run every time step for itself."""
    outputs: dict[int, Tensor] = {}
    for t in sorted(range(T), reverse=reverse):
        new = cell.step(cell.project(x[:, t]), state)
        state = new if mask is None else select_state(mask[:, t], new, state)
        outputs[t] = cell.output(state)
    return torch.stack([outputs[t] for t in range(T)], 1), state


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("mask_name", MASKS)
@pytest.mark.parametrize(("unit", "options"), CASES)
def test_sequence_is_repeated_steps(unit: str, options: Any, mask_name: str, reverse: bool) -> None:
    for layer_norm in (False, True):
        cell = build(unit, options, layer_norm=layer_norm)
        x = tensor(B, T, D)
        mask = None if MASKS[mask_name] is None else torch.tensor(MASKS[mask_name])
        for start in (None, cell.unpack_state(tensor(B, cell.state_size, seed=2))):
            first = start or cell.initial_state(B, like=x)
            expected, expected_last = by_steps(cell, x, first, mask, reverse=reverse)
            outputs, last = cell.sequence(cell.project(x), start, mask, reverse=reverse)
            torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
            for actual, wanted in zip(last, expected_last, strict=True):
                torch.testing.assert_close(actual, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("unit", UNITS)
def test_loop_of_the_base_class_is_the_unit_s_own(unit: str) -> None:
    cell, x, mask = build(unit), tensor(B, T, D), torch.tensor(MASKS["holes"])
    projected = cell.project(x)
    own, last = cell.sequence(projected, None, mask, reverse=True)
    base, base_last = Cell.sequence(cell, projected, None, mask, reverse=True)
    torch.testing.assert_close(own, base)
    torch.testing.assert_close(tuple(last), tuple(base_last))


@pytest.mark.parametrize(("unit", "options"), CASES)
def test_reverse_is_the_forward_run_of_the_flipped_input(unit: str, options: Any) -> None:
    cell, x, mask = build(unit, options, layer_norm=True), tensor(B, T, D), torch.tensor(MASKS["holes"])
    outputs, last = cell.sequence(cell.project(x), None, mask, reverse=True)
    flipped, flipped_last = cell.sequence(cell.project(x.flip(1)), None, mask.flip(1))
    torch.testing.assert_close(outputs, flipped.flip(1))
    torch.testing.assert_close(tuple(last), tuple(flipped_last))


@pytest.mark.parametrize("unit", UNITS)
def test_padding_does_not_reach_real_words(unit: str) -> None:
    cell, mask = build(unit), torch.tensor(MASKS["right"])
    x = tensor(B, T, D)
    spoiled = torch.where(mask[..., None].bool(), x, torch.full_like(x, torch.nan))
    outputs, last = cell.sequence(cell.project(spoiled), None, mask)
    expected, _ = cell.sequence(cell.project(x), None, mask)
    torch.testing.assert_close(outputs, expected)
    for row, length in enumerate((6, 4, 1, 3, 5)):
        alone, alone_last = cell.sequence(cell.project(x[row : row + 1, :length]))
        torch.testing.assert_close(outputs[row, :length], alone[0])
        torch.testing.assert_close(outputs[row, length:], alone[0, -1:].expand(T - length, H))
        torch.testing.assert_close(last.h[row], alone_last.h[0])


@pytest.mark.parametrize("unit", UNITS)
def test_a_dead_row_keeps_its_initial_state(unit: str) -> None:
    cell = build(unit)
    start = cell.unpack_state(tensor(B, cell.state_size, seed=2))
    outputs, last = cell.sequence(cell.project(tensor(B, T, D)), start, torch.tensor(MASKS["dead rows"]))
    for row in (0, 2, 4):
        assert torch.equal(outputs[row], start.h[row].expand(T, H))
        assert all(torch.equal(after[row], before[row]) for after, before in zip(last, start, strict=True))


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["projected", "whole"])
@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer_norm"])
@pytest.mark.parametrize(("unit", "options"), CASES)
def test_gradients(unit: str, options: Any, layer_norm: bool, whole: bool) -> None:
    """Every entry of the Jacobian, or its product with random vectors, to which every entry contributes."""
    cell = build(unit, options, layer_norm=layer_norm)
    rows, length = 3, 3
    mask = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    x, start = tensor(rows, length, D).requires_grad_(), tensor(rows, cell.state_size, seed=2).requires_grad_()
    names, values = zip(*cell.named_parameters(), strict=True)

    def run(x: Tensor, start: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        module = Projected(cell)
        given = {f"cell.{name}": value for name, value in zip(names, parameters, strict=True)}
        return torch.func.functional_call(module, given, (x, start, mask))

    assert torch.autograd.gradcheck(run, (x, start, *values), fast_mode=not whole)


class Projected(torch.nn.Module):
    """Projection and reversed sequence in one call, for functional_call."""

    def __init__(self, cell: Cell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, start: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        state = self.cell.unpack_state(start)
        outputs, last = self.cell.sequence(self.cell.project(x), state, mask, reverse=True)
        return outputs, *last


@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer_norm"])
@pytest.mark.parametrize("unit", UNITS)
def test_autocast_keeps_the_state_in_fp32(unit: str, layer_norm: bool) -> None:
    cell = build(unit, layer_norm=layer_norm).float()
    x, mask = tensor(B, T, D).float(), torch.tensor(MASKS["right"])
    expected, _ = cell.sequence(cell.project(x), None, mask)
    with torch.autocast("cpu", torch.bfloat16):
        projected = cell.project(x)
        start = cell.unpack_state(torch.zeros(B, cell.state_size, dtype=torch.bfloat16))
        outputs, last = cell.sequence(projected, type(start)(*(part.bfloat16() for part in start)), mask)
        stepped = cell.step(projected[:, 0], cell.initial_state(B, like=projected))
    assert layer_norm or projected.dtype == torch.bfloat16
    assert {state.dtype for state in (*start, *last, *stepped)} == {torch.float32}
    assert outputs.dtype in (torch.float32, projected.dtype)  # kernels put out the type of the sequences
    damped = 0.05 if unit != "rnn" else 0.1  # no gate makes what is rounded smaller
    torch.testing.assert_close(outputs.float(), expected, rtol=0, atol=damped)
    # They also add the recurrent bias in fp32, where a step rounds its sum with the product to bf16.
    rounding = 1e-6 if outputs.dtype == torch.float32 else 2.0**-8
    torch.testing.assert_close(outputs[:, 0].float(), cell.output(stepped), rtol=rounding, atol=rounding)
    outputs.sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in cell.parameters())


@pytest.mark.parametrize("unit", UNITS)
def test_a_small_change_survives_many_steps_under_autocast(unit: str) -> None:
    """A state in bf16 would round 1 + 2**-12 away; what is carried must not."""
    cell = build(unit).float()
    state = cell.unpack_state(torch.full((1, cell.state_size), 1 + 2.0**-12))
    dead = torch.zeros(1, T)
    with torch.autocast("cpu", torch.bfloat16):
        _, last = cell.sequence(cell.project(torch.zeros(1, T, D)), state, dead)
    assert all(torch.equal(after, before) for after, before in zip(last, state, strict=True))
