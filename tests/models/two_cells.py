"""Networks of two cells a step: their values and all gradients, and how far from the right ones they may be."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from nmt.models.parts import initialize
from nmt.registry import CELLS


class Sizes(NamedTuple):
    """Of a network and its batch."""

    sentences: int = 5
    target: int = 4
    source: int = 3
    inputs: int = 7
    hidden: int = 19
    memory: int = 22


USUAL = Sizes()


def maker(unit: str, *, hidden: int = USUAL.hidden, layer_norm: bool = False, **options: Any) -> Any:
    cell = CELLS.get(unit)
    return partial(cell, hidden_size=hidden, layer_norm=layer_norm, options=cell.Options(**options))


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
    source = torch.ones(leaves["memory"].shape[:2], dtype=torch.bool, device=leaves["x"].device)
    source[1, 1:] = source[-2, 2:] = False
    memory = network.prepare(leaves["memory"], source)
    state = network.lower.unpack_state(leaves["state"])
    outputs, contexts, weights, last = network.sequence(leaves["x"], memory, state, mask)
    used = weights if mask is None else weights * mask[:, None, :, None]  # others have no meaning
    results = {"outputs": outputs, "contexts": contexts, "last": torch.cat([*last], -1), "weights": used}
    return with_gradients(network, leaves, results)


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
        weights = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        total = total + (value.double().cpu() * weights).sum()
    total.backward()
    gradients = {f"d {name}": leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
    gradients |= {f"d {name}": weight.grad for name, weight in network.named_parameters() if weight.grad is not None}
    return {name: value.detach() for name, value in results.items()} | gradients


def given(name: str, *, parts: int, sizes: Sizes = USUAL) -> dict[str, Tensor]:
    """Inputs, a first state of `parts` parts, and what `name` says: `memory` to attend to, or `aligned` contexts."""
    generator = torch.Generator().manual_seed(4)
    batch, target, source, inputs, hidden, memory = sizes
    positions = {"memory": source, "aligned": target}[name]
    shapes = {"x": (batch, target, inputs), name: (batch, positions, memory), "state": (batch, parts * hidden)}
    return {key: torch.randn(shape, generator=generator, dtype=torch.float64) for key, shape in shapes.items()}


def masks() -> list[Any]:
    shape = USUAL.sentences, USUAL.target
    ragged = torch.ones(shape, dtype=torch.bool)
    ragged[0, 2:] = ragged[2, 1:] = False
    holes = torch.rand(shape, generator=torch.Generator().manual_seed(6)) < 0.6
    return [pytest.param(None, id="all"), pytest.param(ragged, id="padded"), pytest.param(holes, id="holes")]


def check(
    found: dict[str, Tensor], wanted: dict[str, Tensor], *, tolerance: float, rounded: dict[str, Tensor] | None = None
) -> None:
    """Each tensor within `tolerance` of the largest value of its kind; the score bias's gradient is rounding alone.

    `rounded`: the same in the same low precision by other means; twice as far as these are from `wanted` is allowed
    as well, since sums of values that cancel keep their rounding errors.
    """
    assert found.keys() >= wanted.keys()
    for name in found.keys() - wanted.keys():
        assert not found[name].any(), name  # what autograd leaves out: a weight that nothing depends on
    for name, value in wanted.items():
        if name.endswith("score_bias"):
            assert found[name].abs().max() < tolerance * 10, name
            continue
        largest = max(float(value.abs().max()), 1e-3)
        allowed = tolerance * largest
        if rounded is not None:
            allowed += 2 * float((rounded[name].double() - value).abs().max())
        assert float((found[name].double() - value).abs().max()) <= allowed, name
