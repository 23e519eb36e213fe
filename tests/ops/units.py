"""The units as functions of input, weights and state, by their kernels and by their equations."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from nmt.ops import dispatch, native
from nmt.ops.sequence import reference, sequence
from nmt.ops.unit import UNITS, Unit

needs_native = pytest.mark.skipif(native.problem() is not None, reason=f"no compiled kernels: {native.problem()}")

Function = Callable[..., tuple[Tensor, ...]]
"""Of x [B, T, kH], the weights, the state, `mask` and `reverse`: all outputs and the last state."""


class Case(NamedTuple):
    """A unit with options."""

    kind: type[Unit]
    options: dict[str, Any]
    rows: tuple[int, ...] = ()
    """j of each recurrent weight [jH, H], which a bias [jH] follows; 0 for a weight [H] alone"""
    normalized: bool = False

    @property
    def products(self) -> int:
        """k"""
        return self.kind.inputs

    @property
    def parts(self) -> int:
        """Tensors of the state."""
        return self.kind.states

    def inputs(self, *, batch: int, length: int, hidden: int, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
        """x and the weights, of a size at which gates neither saturate nor do nothing."""
        generator = torch.Generator().manual_seed(seed)
        weights = []
        for rows in self.rows:
            if rows:
                weights.append(torch.randn(rows * hidden, hidden, generator=generator) / hidden**0.5)
            for _ in range(3 if rows and self.normalized else 1):
                weights.append(torch.randn(max(rows, 1) * hidden, generator=generator) / 2)
        return torch.randn(batch, length, self.products * hidden, generator=generator), weights

    def states(self, *, batch: int, hidden: int, seed: int = 1) -> list[Tensor]:
        """An initial state."""
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(batch, hidden, generator=generator) for _ in range(self.parts)]

    def unit(self, weights: Sequence[Tensor]) -> Unit:
        """With these weights."""
        return self.kind(weights=tuple(weights), normalized=self.normalized, **self.options)

    def _run(self, function: Any, x: Tensor, *rest: Tensor, mask: Tensor | None, reverse: bool) -> tuple[Tensor, ...]:
        count = sum(1 if not rows else 4 if self.normalized else 2 for rows in self.rows)
        weights, state = rest[:count], rest[count:]
        outputs, last = function(self.unit(weights), x, tuple(state) or None, mask, reverse=reverse)
        return outputs, *last

    @property
    def kernel(self) -> Function:
        """By kernels where they run."""
        return partial(self._run, sequence)

    @property
    def reference(self) -> Function:
        """By the equation."""
        return partial(self._run, reference)


ROWS = {"atr": (1,), "gru": (2, 1), "lstm": (4,), "sru": (0, 0)} | {
    "ssru": (0,),
    "min_gru": (0, 0),
    "min_lstm": (0, 0, 0),
}


def case(name: str, *, normalized: bool = False, **options: Any) -> Case:
    """A unit that nmt has."""
    return Case(UNITS[name], options, ROWS.get(name, ()), normalized)


CASES = {
    "gru": case("gru"),
    "lstm": case("lstm"),
    "sru": case("sru"),
    "lrn": case("lrn"),
    "lrn-tanh": case("lrn", tanh=True),
    "olrn": case("olrn"),
    "olrn-tanh": case("olrn", tanh=True),
    "ssru": case("ssru"),
    "min_gru": case("min_gru"),
    "min_gru-positive": case("min_gru", positive=True),
    "min_lstm": case("min_lstm"),
    "min_lstm-positive": case("min_lstm", positive=True),
} | {
    f"atr-{activation}-{gates}": case("atr", activation=activation, gates=gates)
    for activation in ("none", "output", "state", "candidate")
    for gates in ("twin", "coupled", "coupled_input")
}
NORMALIZED = {f"{name}-normalized": case(name, normalized=True) for name in ("atr", "gru", "lstm")}
PLAIN = ("atr-none-twin", "gru", "lrn", "lstm", "min_gru", "min_lstm", "olrn", "sru", "ssru")
"""Each unit once, as its default options make it."""


def both(case: Case, mask: Tensor | None, *, reverse: bool) -> tuple[Function, Function]:
    """The kernel and the reference for one mask and direction."""
    return partial(case.kernel, mask=mask, reverse=reverse), partial(case.reference, mask=mask, reverse=reverse)


def masks(batch: int, length: int) -> Sequence[Tensor | None]:
    """None, padding at the right, and any pattern, in which a row is dead and a time step is dead in all rows."""
    padding = torch.arange(length) < torch.arange(length, length - batch, -1).clamp_min(1)[:, None]
    holes = torch.rand(batch, length, generator=torch.Generator().manual_seed(3)) < 0.6
    holes[-1] = holes[:, length // 2] = False
    return None, padding, holes


@contextlib.contextmanager
def by_triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Units run on their Triton kernels, wherever their tensors are; a list of the operations that did."""
    used: list[str] = []

    def runs_triton(operation: str, *, like: Tensor, there: bool) -> bool:
        if there:
            used.append(operation)
        return there

    with monkeypatch.context() as patch, dispatch.selected("reference"):
        patch.setattr(importlib.import_module("nmt.ops.sequence"), "runs_triton", runs_triton)
        yield used
