"""SSRU, minGRU and minLSTM against NumPy: the state as a weighted sum of all candidates, and its gradients.

With a the share of the old state and g the candidate of a step, h_t = a_1 ... a_t h_0 + the sum over s of
a_(s+1) ... a_t (1 - a_s) g_s: written out, without the recurrence that the units run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nmt.cells import Cell
from nmt.ops import MinLSTM
from nmt.ops.sequence import sequence
from nmt.registry import CELLS

Array = NDArray[np.float64]

B, T, D, H = 3, 5, 4, 3
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 1, 0], [0, 1, 1, 0, 1]], dtype=bool)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("ssru", {}),
    ("min_gru", {}),
    ("min_gru", {"positive": True}),
    ("min_lstm", {}),
    ("min_lstm", {"positive": True}),
]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def normalized(x: Array, scale: Array, offset: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    return scale * (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-8) + offset


def products(x: Array, weights: Mapping[str, Array], widths: list[int]) -> list[Array]:
    """Those of the input, [B, T, H] each; with layer norm normalised in parts of these widths."""
    found = x @ weights["input_weight"].T
    if "input_scale" in weights:
        ends = np.cumsum(widths)[:-1]
        split = [np.split(part, ends, -1) for part in (found, weights["input_scale"], weights["input_offset"])]
        found = np.concatenate([normalized(*parts) for parts in zip(*split, strict=True)], -1)
    return np.split(found, found.shape[-1] // H, -1)


def share_and_candidate(unit: str, x: Array, weights: Mapping[str, Array], *, positive: bool) -> tuple[Array, Array]:
    """a and g, [B, T, H]."""
    if unit == "ssru":
        x_f, candidate = products(x, weights, [H, H])
        return sigmoid(x_f + weights["forget_gate_bias"]), candidate
    if unit == "min_gru":
        x_z, x_h = products(x, weights, [H, H])
        share = 1 - sigmoid(x_z + weights["update_gate_bias"])
    else:
        x_f, x_i, x_h = products(x, weights, [2 * H, H])
        f, i = sigmoid(x_f + weights["forget_gate_bias"]), sigmoid(x_i + weights["input_gate_bias"])
        share = f / (f + i)
    candidate = x_h + weights["candidate_bias"]
    return share, np.where(candidate >= 0, candidate + 0.5, sigmoid(candidate)) if positive else candidate


def written_out(unit: str, x: Array, start: Array, weights: Mapping[str, Array], *, positive: bool) -> list[Array]:
    """The outputs [B, T, H] and the last state; `start` is the packed state before, MASK says which steps count."""
    share, candidate = share_and_candidate(unit, x, weights, positive=positive)
    share = np.where(MASK[..., None], share, 1.0)
    first = start[:, -H:]  # c where there is one
    memory = np.empty((B, T, H))
    for t in range(T):
        memory[:, t] = share[:, : t + 1].prod(1) * first
        for s in range(t + 1):
            memory[:, t] += share[:, s + 1 : t + 1].prod(1) * (1 - share[:, s]) * candidate[:, s]
    if unit != "ssru":
        return [memory, memory[:, -1]]
    begun = MASK.cumsum(1)[..., None] > 0  # before its first word a row keeps the h it was given
    outputs = np.where(begun, np.maximum(memory, 0), start[:, None, :H])
    return [outputs, outputs[:, -1], memory[:, -1]]


def build(unit: str, options: dict[str, Any], *, layer_norm: bool) -> Cell[Any]:
    kind = CELLS.get(unit)
    cell: Cell[Any] = kind(D, H, layer_norm=layer_norm, options=kind.Options(**options)).double()
    generator = torch.Generator().manual_seed(7)
    for parameter in cell.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return cell


@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "layer_norm"])
@pytest.mark.parametrize(("unit", "options"), CASES)
def test_values_and_gradients_are_those_of_the_written_out_sum(
    unit: str, options: dict[str, Any], layer_norm: bool
) -> None:
    cell, draw = build(unit, options, layer_norm=layer_norm), np.random.default_rng(3)
    given = {"x": draw.normal(size=(B, T, D)), "start": draw.normal(size=(B, cell.state_size))}
    given |= {name: parameter.detach().numpy().copy() for name, parameter in cell.named_parameters()}
    positive = bool(options.get("positive"))

    x, start = (torch.from_numpy(given[name]).requires_grad_() for name in ("x", "start"))
    outputs, last = cell.sequence(cell.project(x), cell.unpack_state(start), torch.from_numpy(MASK))
    wanted = written_out(unit, given["x"], given["start"], given, positive=positive)
    for ours, right in zip((outputs, *last), wanted, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), right, rtol=0, atol=1e-13)

    factors = [draw.normal(size=part.shape) for part in wanted]

    def objective() -> float:
        parts = written_out(unit, given["x"], given["start"], given, positive=positive)
        return float(sum((factor * part).sum() for factor, part in zip(factors, parts, strict=True)))

    value = sum((torch.from_numpy(f) * part).sum() for f, part in zip(factors, (outputs, *last), strict=True))
    leaves = {"x": x, "start": start, **dict(cell.named_parameters())}
    gradients = torch.autograd.grad(value, list(leaves.values()))  # type: ignore[arg-type]
    for name, gradient in zip(leaves, gradients, strict=True):
        np.testing.assert_allclose(gradient.numpy(), differences(objective, given[name]), rtol=0, atol=3e-8)


def differences(function: Any, array: Array, step: float = 1e-5) -> Array:
    """The central difference quotients of a function in each entry of an array that it reads."""
    found = np.empty_like(array)
    for place in np.ndindex(array.shape):
        kept = array[place]
        values = []
        for moved in (kept + step, kept - step):
            array[place] = moved
            values.append(function())
        array[place] = kept
        found[place] = (values[0] - values[1]) / (2 * step)
    return found


@pytest.mark.parametrize(("unit", "bias"), [
    ("ssru", "forget_gate_bias"), ("min_gru", "update_gate_bias"), ("min_lstm", "forget_gate_bias"),
])  # fmt: skip
def test_forget_bias_keeps_the_state(unit: str, bias: str) -> None:
    kind = CELLS.get(unit)
    cell = kind(D, H, options=kind.Options(forget_bias=1.5))
    cell.reset_parameters(0.1)
    own = dict(cell.named_parameters())
    assert own[bias].tolist() == [-1.5 if unit == "min_gru" else 1.5] * H
    assert not any(value.any() for name, value in own.items() if name.endswith("bias") and name != bias)
    state = cell.step(cell.project(torch.zeros(1, D)), cell.unpack_state(torch.ones(1, cell.state_size)))
    kept = 1 / (1 + np.exp(-1.5))
    expected = kept / (kept + 0.5) if unit == "min_lstm" else kept
    assert state[-1].tolist()[0] == pytest.approx([expected] * H)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32]
)  # by the equation, and by the C kernel if there is one
def test_gates_of_min_lstm_may_be_too_small_for_a_float(dtype: torch.dtype) -> None:
    """sigmoid(-300) and sigmoid(-301) are 0 in fp32; their shares of the sum are not."""
    unit = MinLSTM(weights=tuple(torch.zeros(1, dtype=dtype) for _ in range(3)))
    gates = torch.tensor([[-300.0, -301.0], [-301.0, -300.0], [-300.0, 90.0], [90.0, -300.0], [90.0, 90.0]])
    x = torch.cat([gates, torch.zeros(5, 1)], 1).to(dtype).unsqueeze(1).requires_grad_()
    outputs, _ = sequence(unit, x, (torch.ones(5, 1, dtype=dtype),))
    share = 1 / (1 + np.exp(-1.0))
    torch.testing.assert_close(outputs.flatten(), torch.tensor([share, 1 - share, 0, 1, 0.5], dtype=dtype))
    (dx,) = torch.autograd.grad(outputs.sum(), x)
    slope = share * (1 - share)
    wanted = torch.tensor([[slope, -slope], [slope, -slope], [0, 0], [0, 0], [0, 0]], dtype=dtype)
    torch.testing.assert_close(dx[:, 0, :2], wanted)
