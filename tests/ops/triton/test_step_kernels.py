"""GRU, LSTM and ATR with layer norm, a product and kernels at each step, against their references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.ops import dispatch
from nmt.ops.atr.reference import atr_reference
from nmt.ops.gru.reference import gru_reference
from nmt.ops.lstm.reference import lstm_reference
from nmt.ops.recurrence import Recurrent
from tests.ops.triton.comparison import assert_equal, make_mask, randn

loop = pytest.importorskip("nmt.ops.loop", reason="Triton is not installed")
steps = pytest.importorskip("nmt.ops.steps", reason="Triton is not installed")
atr = pytest.importorskip("nmt.ops.atr.triton", reason="Triton is not installed")
gru = pytest.importorskip("nmt.ops.gru.triton", reason="Triton is not installed")
lstm = pytest.importorskip("nmt.ops.lstm.triton", reason="Triton is not installed")

BATCH, LENGTH, HIDDEN = 3, 4, 6


def recurrent(device: torch.device, rows: int, *, layer_norm: bool, dtype: torch.dtype, seed: int) -> list[Any]:
    """weight, bias, scale and offset of one recurrent matrix [rows * H, H]."""
    width = rows * HIDDEN
    weight = randn(width, HIDDEN, device=device, dtype=dtype, seed=seed)
    rest = [randn(width, device=device, seed=seed + i) for i in (1, 2, 3)]
    return [weight, *(rest if layer_norm else (rest[0], None, None))]


def inputs(
    unit: str, device: torch.device, *, layer_norm: bool, started: bool = True, dtype: torch.dtype = torch.float32
) -> list[Tensor | None]:
    """projected, two states, and the recurrent parameters, of a unit."""
    products, rows = {"gru": (3, (2, 1)), "lstm": (4, (4,)), "atr": (1, (1,))}[unit]
    x = randn(BATCH, LENGTH, products * HIDDEN, device=device, dtype=dtype)
    h, c = (randn(BATCH, HIDDEN, device=device, seed=seed) if started else None for seed in (1, 2))
    parameters = [
        recurrent(device, count, layer_norm=layer_norm, dtype=dtype, seed=10 + 5 * i) for i, count in enumerate(rows)
    ]
    return [x, h, c if unit == "lstm" else None, *(part for one in parameters for part in one)]


def bound(unit: str, function: Callable[..., Any], mask: Tensor | None, **options: Any) -> Callable[..., Any]:
    def run(x: Tensor, h: Tensor | None, c: Tensor | None, *parts: Any) -> Any:
        matrices = [Recurrent(*parts[i : i + 4]) for i in range(0, len(parts), 4)]
        state = (h, c) if unit == "lstm" else (h,)
        return function(x, *matrices, *state, mask, **options)

    return run


FUNCTIONS = {
    "atr": (atr.atr_triton, atr_reference),
    "gru": (gru.gru_triton, gru_reference),
    "lstm": (lstm.lstm_triton, lstm_reference),
}


def check(
    unit: str, tensors: list[Tensor | None], mask: Tensor | None, *, comparison: Any = None, **options: Any
) -> None:
    options = {"reverse": False} | ({"activation": "none", "gates": "twin"} if unit == "atr" else {}) | options
    kernel, reference = (bound(unit, function, mask, **options) for function in FUNCTIONS[unit])
    assert_equal(kernel, reference, tensors, **(comparison or {}))


@pytest.fixture(autouse=True)
def _step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """ATR as where its persistent programs do not fit."""
    monkeypatch.setattr(atr, "fits_on_chip", lambda weight, *, batch: False)


@pytest.mark.parametrize(("mask", "started", "reverse"), [("none", False, False), ("holes", True, True)])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("unit", ["atr", "gru", "lstm"])
def test_values_and_all_gradients(
    unit: str, layer_norm: bool, mask: str, started: bool, reverse: bool, device: torch.device
) -> None:
    tensors = inputs(unit, device, layer_norm=layer_norm, started=started)
    check(unit, tensors, make_mask(mask, BATCH, LENGTH, device), reverse=reverse)


@pytest.mark.parametrize(("unit", "mask"), [("atr", "none"), ("gru", "holes"), ("lstm", "padding")])
def test_rows_that_are_added_for_graphs_change_nothing(
    unit: str, mask: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop.graphs, "filled_up", lambda batch: batch + 2)
    check(unit, inputs(unit, device, layer_norm=True), make_mask(mask, BATCH, LENGTH, device))


@pytest.mark.parametrize("gates", ["twin", "coupled", "coupled_input"])
@pytest.mark.parametrize("activation", ["output", "state", "candidate"])
def test_all_designs_of_atr_with_layer_norm(activation: str, gates: str, device: torch.device) -> None:
    mask = make_mask("padding", BATCH, LENGTH, device)
    check("atr", inputs("atr", device, layer_norm=True), mask, activation=activation, gates=gates)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("unit", ["atr", "gru", "lstm"])
def test_low_precision_products_with_fp32_state(unit: str, layer_norm: bool, device: torch.device) -> None:
    tensors = inputs(unit, device, layer_norm=layer_norm, dtype=torch.bfloat16)
    options = {"activation": "none", "gates": "twin"} if unit == "atr" else {}
    outputs, *last = bound(unit, FUNCTIONS[unit][0], None, reverse=False, **options)(*tensors)
    assert outputs.dtype == torch.bfloat16
    assert {part.dtype for part in last} == {torch.float32}
    check(unit, tensors, None, comparison={"storage": torch.bfloat16, "slack": 2})


@pytest.mark.parametrize("unit", ["gru", "lstm"])
def test_autocast_computes_products_in_its_type(unit: str, device: torch.device) -> None:
    tensors = inputs(unit, device, layer_norm=True)
    weight = tensors[3]
    assert weight is not None
    weight.requires_grad_()
    results = []
    for function in FUNCTIONS[unit]:
        with torch.autocast(device.type, torch.bfloat16):
            outputs, last, *_ = bound(unit, function, None, reverse=False)(*tensors)
        assert outputs.dtype == last.dtype == torch.float32
        results.append((outputs.detach(), *torch.autograd.grad(outputs.sum() + last.sum(), weight)))
    torch.testing.assert_close(*results, rtol=5e-2, atol=5e-2)


def test_the_operator_passes_the_checks_of_torch(device: torch.device) -> None:
    x, h, _, *parts = inputs("gru", device, layer_norm=True)
    assert h is not None
    weights = [part.requires_grad_() for part in parts if part is not None]
    mask = make_mask("holes", BATCH, LENGTH, device)
    torch.library.opcheck(loop.loop_op, ("gru", x.requires_grad_(), weights, mask, h.unsqueeze(0), True, ""))


def test_a_row_too_wide_is_left_to_the_reference(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "MOST_CHANNELS", 4)
    check("gru", inputs("gru", device, layer_norm=False), None)
    too_wide = "cannot run lstm: a hidden size of 6 is more than 4. Use auto.$"
    with dispatch.selected("triton"), pytest.raises(ConfigError, match=too_wide):
        check("lstm", inputs("lstm", device, layer_norm=False), None)


def test_no_time_steps(device: torch.device) -> None:
    x, h, *rest = inputs("gru", device, layer_norm=False)
    outputs, last = bound("gru", gru.gru_triton, None, reverse=False)(x[:, :0], h, *rest)
    assert outputs.shape == (BATCH, 0, HIDDEN)
    assert torch.equal(last, h)
