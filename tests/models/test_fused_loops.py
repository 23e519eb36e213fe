"""Loops over two cells by C kernels: values and all gradients against the written-out loop in float64."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.models.conditional import AttentionRNN, OneToOneRNN
from nmt.models.initialize import initialize
from nmt.ops import native
from nmt.ops.conditional import fused_units
from nmt.ops.native.unit import KERNELS
from nmt.registry import CELLS

UNITS = sorted(KERNELS)
B, T, S, D, H, M = 5, 4, 3, 7, 19, 22
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "atr": [{"activation": "state"}, {"activation": "candidate", "gates": "coupled"}],
    "lrn": [{"tanh": True}],
    "olrn": [{"tanh": True}],
}

pytestmark = pytest.mark.skipif(native.problem() is not None, reason=f"no compiled kernels: {native.problem()}")


def maker(unit: str, **options: Any) -> Any:
    cell = CELLS.get(unit)
    return partial(cell, hidden_size=H, options=cell.Options(**options))


def cases() -> list[Any]:
    every = [(unit, options) for unit in UNITS for options in ({}, *OPTIONS.get(unit, []))]
    return [pytest.param(unit, options, id="-".join([unit, *map(str, options.values())])) for unit, options in every]


def started(network: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    initialize(network, 0.7)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            nn.init.uniform_(parameter, -0.5, 0.5)
    return network


def run_attention(network: Any, given: dict[str, Tensor], mask: Tensor | None, dtype: torch.dtype) -> dict[str, Tensor]:
    """Results, and the gradients of a fixed weighting of them with regard to everything that has one."""
    leaves = {name: value.to(dtype, copy=True).requires_grad_() for name, value in given.items()}
    source = torch.ones(len(leaves["x"]), S, dtype=torch.bool)
    source[1, 1:] = source[3, 2:] = False
    memory = network.attention.prepare(leaves["memory"], source)
    state = network.lower.unpack_state(leaves["state"])
    outputs, contexts, weights, last = network.sequence(leaves["x"], memory, state, mask)
    return with_gradients(
        network, leaves, {"outputs": outputs, "contexts": contexts, "last": torch.cat([*last], -1)}
    ) | {"weights": weights.detach()}


def run_one_to_one(
    network: Any, given: dict[str, Tensor], mask: Tensor | None, *, dtype: torch.dtype, reverse: bool
) -> Any:
    leaves = {name: value.to(dtype, copy=True).requires_grad_() for name, value in given.items()}
    state = network.lower.unpack_state(leaves["state"])
    outputs, last = network.sequence(leaves["x"], leaves["aligned"], state, mask, reverse=reverse)
    return with_gradients(network, leaves, {"outputs": outputs, "last": torch.cat([*last], -1)})


def with_gradients(network: nn.Module, leaves: dict[str, Tensor], results: dict[str, Tensor]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    network.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for value in results.values():
        total = total + (value.double() * torch.randn(value.shape, generator=generator, dtype=torch.float64)).sum()
    total.backward()
    gradients = {f"d {name}": leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    gradients |= {f"d {name}": weight.grad for name, weight in network.named_parameters() if weight.grad is not None}
    return {name: value.detach() for name, value in results.items()} | gradients


def given(*, memory: tuple[int, ...], name: str, parts: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(4)
    shapes = {"x": (B, T, D), name: memory, "state": (B, parts * H)}
    return {key: torch.randn(shape, generator=generator, dtype=torch.float64) for key, shape in shapes.items()}


def masks() -> list[Any]:
    ragged = torch.ones(B, T, dtype=torch.bool)
    ragged[0, 2:] = ragged[2, 1:] = False
    holes = torch.rand(B, T, generator=torch.Generator().manual_seed(6)) < 0.6
    return [pytest.param(None, id="all"), pytest.param(ragged, id="padded"), pytest.param(holes, id="holes")]


def check(found: dict[str, Tensor], wanted: dict[str, Tensor], *, tolerance: float) -> None:
    """Each tensor within `tolerance` of the largest value of its kind; the score bias's gradient is rounding alone."""
    assert found.keys() >= wanted.keys()
    for name in found.keys() - wanted.keys():
        assert not found[name].any(), name  # what autograd leaves out: a weight that nothing depends on
    for name, value in wanted.items():
        if name == "d attention.score_bias":
            assert found[name].abs().max() < tolerance * 10, name
            continue
        largest = max(float(value.abs().max()), 1e-3)
        assert float((found[name].double() - value).abs().max()) <= tolerance * largest, name


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
    network = started(AttentionRNN(maker(unit, **options), D, M, heads=heads))
    assert isinstance(network, AttentionRNN)
    assert fused_units(network.lower.unit(), network.higher.unit(), like=torch.zeros(1)) is not None
    tensors = given(memory=(B, S, M), name="memory", parts=len(network.lower.State._fields))
    wanted = run_attention(copy.deepcopy(network).double(), tensors, mask, torch.float64)
    check(run_attention(network, tensors, mask, torch.float32), wanted, tolerance=2e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = run_attention(network, tensors, mask, torch.float32)
    check(narrow, wanted, tolerance=6e-2)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mask", masks())
@pytest.mark.parametrize(("unit", "options"), cases())
def test_one_to_one_loop(unit: str, options: dict[str, Any], mask: Tensor | None, reverse: bool) -> None:
    network = started(OneToOneRNN(maker(unit, **options), D, M))
    assert isinstance(network, OneToOneRNN)
    tensors = given(memory=(B, T, M), name="aligned", parts=len(network.lower.State._fields))
    wanted = run_one_to_one(copy.deepcopy(network).double(), tensors, mask, dtype=torch.float64, reverse=reverse)
    found = run_one_to_one(network, tensors, mask, dtype=torch.float32, reverse=reverse)
    check(found, wanted, tolerance=2e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        narrow = run_one_to_one(network, tensors, mask, dtype=torch.float32, reverse=reverse)
    check(narrow, wanted, tolerance=6e-2)


@pytest.mark.parametrize("unit", UNITS)
def test_the_number_of_threads_changes_no_bit(unit: str) -> None:
    network = started(AttentionRNN(maker(unit), D, M))
    assert isinstance(network, AttentionRNN)
    tensors = given(memory=(B, S, M), name="memory", parts=len(network.lower.State._fields))
    many = {name: value.repeat(64, *[1] * (value.dim() - 1)) for name, value in tensors.items()}
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(run_attention(network, many, None, torch.float32))
    finally:
        torch.set_num_threads(threads)
    for name, value in results[0].items():
        assert torch.equal(value, results[1][name]), name
