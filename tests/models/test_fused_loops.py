"""Loops over two cells by C kernels: values and all gradients against the written-out loop in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.models.decoder import AttentionRNN, DeepAttentionRNN
from nmt.models.encoder import OneToOneRNN
from nmt.ops import dispatch, native
from nmt.ops.unit import UNITS as KINDS
from tests.models.two_cells import USUAL, check, given, maker, masks, run_attention, run_one_to_one, started

UNITS = sorted(name for name, kind in KINDS.items() if kind.native and name != "min_gru")
"""All but one that has, to a loop, the form of `min_lstm`."""
BENT = "ssru"
"""Its relu has a derivative that jumps: a value that bf16 rounds to the other side of 0 gets another gradient."""
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "atr": [
        {"activation": "output"},
        {"activation": "state", "gates": "coupled_input"},
        {"activation": "candidate", "gates": "coupled"},
    ],
    "lrn": [{"tanh": True}],
    "olrn": [{"tanh": True}],
}

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"no compiled kernels: {native.problem()}")


def cases() -> list[Any]:
    every = [(unit, options) for unit in UNITS for options in ({}, *OPTIONS.get(unit, []))]
    return [pytest.param(unit, options, id="-".join([unit, *map(str, options.values())])) for unit, options in every]


@pytest.fixture(autouse=True)
def _poisoned_memory() -> Any:
    """Fresh memory is NaN, so that what no kernel has written is seen."""
    before = torch.utils.deterministic.fill_uninitialized_memory, torch.are_deterministic_algorithms_enabled()
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.utils.deterministic.fill_uninitialized_memory = before[0]
    torch.use_deterministic_algorithms(before[1])


@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("unit", "options"), cases())
def test_attention_loop(unit: str, options: dict[str, Any], heads: int, mask: Tensor | None) -> None:
    network = started(AttentionRNN(maker(unit, **options), USUAL.inputs, USUAL.memory, heads=heads))
    assert isinstance(network, AttentionRNN)
    tensors = given("memory", parts=len(network.lower.State._fields))
    wanted = run_attention(copy.deepcopy(network).double(), tensors, mask, torch.float64)
    check(run_attention(network, tensors, mask, torch.float32), wanted, tolerance=2e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = run_attention(network, tensors, mask, torch.float32)
        with dispatch.selected("reference"):
            rounded = run_attention(network, tensors, mask, torch.float32) if unit == BENT else None
    check(narrow, wanted, tolerance=6e-2, rounded=rounded)


@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit != "min_lstm"])  # whose form is that of `lrn`
def test_deep_attention_loop(unit: str, heads: int, mask: Tensor | None) -> None:
    network = started(DeepAttentionRNN(maker(unit), USUAL.inputs, USUAL.memory, levels=3, heads=heads))
    assert isinstance(network, DeepAttentionRNN)
    tensors = given("memory", parts=len(network.lower.State._fields))
    with dispatch.selected("reference"):
        wanted = run_attention(copy.deepcopy(network).double(), tensors, mask, torch.float64)
        reference = run_attention(copy.deepcopy(network), tensors, mask, torch.float32)
    found = run_attention(network, tensors, mask, torch.float32)
    assert not all(torch.equal(value, reference[name]) for name, value in found.items())  # the kernels did run
    check(found, wanted, tolerance=2e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = run_attention(network, tensors, mask, torch.float32)
        with dispatch.selected("reference"):
            rounded = run_attention(copy.deepcopy(network), tensors, mask, torch.float32)
    check(narrow, wanted, tolerance=6e-2, rounded=rounded)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize(("unit", "options"), cases())
def test_one_to_one_loop(unit: str, options: dict[str, Any], mask: Tensor | None, reverse: bool) -> None:
    network = started(OneToOneRNN(maker(unit, **options), USUAL.inputs, USUAL.memory))
    assert isinstance(network, OneToOneRNN)
    tensors = given("aligned", parts=len(network.lower.State._fields))
    wanted = run_one_to_one(copy.deepcopy(network).double(), tensors, mask, dtype=torch.float64, reverse=reverse)
    found = run_one_to_one(network, tensors, mask, dtype=torch.float32, reverse=reverse)
    check(found, wanted, tolerance=2e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = run_one_to_one(network, tensors, mask, dtype=torch.float32, reverse=reverse)
        with dispatch.selected("reference"):
            again = run_one_to_one(network, tensors, mask, dtype=torch.float32, reverse=reverse)
    check(narrow, wanted, tolerance=6e-2, rounded=again if unit == BENT else None)


@pytest.mark.parametrize("unit", UNITS)
def test_the_number_of_threads_changes_no_bit(unit: str) -> None:
    network = started(AttentionRNN(maker(unit), USUAL.inputs, USUAL.memory))
    assert isinstance(network, AttentionRNN)
    tensors = given("memory", parts=len(network.lower.State._fields))
    many = {name: value.repeat(64, *[1] * (value.dim() - 1)) for name, value in tensors.items()}
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(run_attention(network, many, None, torch.float32))
    finally:
        torch.set_num_threads(threads)
    for name, value in results[0].items():
        if name.endswith("input_weight"):  # a product of PyTorch, whose libraries split its sum by threads on some CPUs
            torch.testing.assert_close(value, results[1][name], rtol=1e-5, atol=1e-4, msg=name)
        else:
            assert torch.equal(value, results[1][name]), name
