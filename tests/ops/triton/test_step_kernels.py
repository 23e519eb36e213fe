"""GRU, LSTM and ATR with a product and kernels at each step, against their equations."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.ops import dispatch
from tests.ops.triton.comparison import assert_equal, make_mask
from tests.ops.units import Case, by_triton, case

triton_rows = pytest.importorskip("nmt.ops.triton_rows", reason="Triton is not installed")
graphs = importlib.import_module("nmt.ops.graphs")
atr = importlib.import_module("nmt.ops.atr.triton")

BATCH, LENGTH, HIDDEN = 3, 4, 6


@pytest.fixture(autouse=True)
def _steps_of_atr_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel for whole sequences has tests of its own."""
    monkeypatch.setattr(atr.ATRKernel, "whole", classmethod(lambda *_, **__: None))


def inputs(
    of: Case, device: torch.device, *, started: bool = True, dtype: torch.dtype = torch.float32
) -> list[Tensor | None]:
    """x, the weights, whose matrices are of this type too, and a state."""
    x, weights = of.inputs(batch=BATCH, length=LENGTH, hidden=HIDDEN)
    weights = [weight.to(dtype) if weight.dim() == 2 else weight for weight in weights]
    state = of.states(batch=BATCH, hidden=HIDDEN) if started else []
    return [part.to(device) for part in (x.to(dtype), *weights, *state)]


def check(
    of: Case, mask: Tensor | None, device: torch.device, monkeypatch: pytest.MonkeyPatch,
    *, started: bool = True, dtype: torch.dtype = torch.float32, reverse: bool = False, **comparison: Any,
) -> None:  # fmt: skip
    kernel, reference = (partial(run, mask=mask, reverse=reverse) for run in (of.kernel, of.reference))
    with by_triton(monkeypatch) as used:
        assert_equal(kernel, reference, inputs(of, device, started=started, dtype=dtype), **comparison)
    assert used == [f"sequence {of.unit(()).words}"]


@pytest.mark.parametrize(("mask", "started", "reverse"), [("none", False, False), ("holes", True, True)])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("unit", ["atr", "gru", "lstm"])
def test_values_and_all_gradients(
    unit: str, layer_norm: bool, mask: str, started: bool, reverse: bool,
    device: torch.device, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    of, live = case(unit, normalized=layer_norm), make_mask(mask, BATCH, LENGTH, device)
    check(of, live, device, monkeypatch, started=started, reverse=reverse)


@pytest.mark.parametrize(("unit", "mask"), [("atr", "none"), ("gru", "holes"), ("lstm", "padding")])
def test_rows_that_are_added_for_graphs_change_nothing(
    unit: str, mask: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "filled_up", lambda batch: batch + 2)
    check(case(unit, normalized=True), make_mask(mask, BATCH, LENGTH, device), device, monkeypatch)


@pytest.mark.parametrize("gates", ["twin", "coupled", "coupled_input"])
@pytest.mark.parametrize("activation", ["output", "state", "candidate"])
def test_all_designs_of_atr_with_layer_norm(
    activation: str, gates: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = case("atr", normalized=True, activation=activation, gates=gates)
    check(of, make_mask("padding", BATCH, LENGTH, device), device, monkeypatch)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("unit", ["atr", "gru", "lstm"])
def test_low_precision_products_with_fp32_state(
    unit: str, layer_norm: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = case(unit, normalized=layer_norm)
    with by_triton(monkeypatch):
        outputs, *last = of.kernel(*inputs(of, device, dtype=torch.bfloat16), mask=None, reverse=False)
    assert outputs.dtype == torch.bfloat16
    assert {part.dtype for part in last} == {torch.float32}
    check(of, None, device, monkeypatch, dtype=torch.bfloat16, storage=torch.bfloat16, slack=2)


@pytest.mark.parametrize("unit", ["gru", "lstm"])
def test_autocast_computes_products_in_its_type(
    unit: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = case(unit, normalized=True)
    tensors = inputs(of, device)
    weight = tensors[1]
    assert weight is not None
    weight.requires_grad_()
    results = []
    for run in (of.kernel, of.reference):
        with by_triton(monkeypatch), torch.autocast(device.type, torch.bfloat16):
            outputs, last, *_ = run(*tensors, mask=None, reverse=False)
        assert outputs.dtype == last.dtype == torch.float32
        results.append((outputs.detach(), *torch.autograd.grad(outputs.sum() + last.sum(), weight)))
    torch.testing.assert_close(*results, rtol=5e-2, atol=5e-2)


def test_a_row_too_wide_is_left_to_the_reference(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_rows, "MOST_CHANNELS", 4)
    check(case("gru"), None, device, monkeypatch)
    too_wide = "cannot run lstm tanh: a hidden size of 6 is more than 4. Use auto.$"
    with by_triton(monkeypatch), dispatch.selected("triton"), pytest.raises(ConfigError, match=too_wide):
        case("lstm").kernel(*inputs(case("lstm"), device), mask=None, reverse=False)


def test_no_time_steps(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    of = case("gru")
    x, *rest = inputs(of, device)
    assert x is not None
    with by_triton(monkeypatch):
        outputs, last = of.kernel(x[:, :0], *rest, mask=None, reverse=False)
    assert outputs.shape == (BATCH, 0, HIDDEN)
    assert torch.equal(last, rest[-1])
