"""A plugin that brings a unit with kernels in C and in Triton, and a cell of it."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from nmt.cells.base import HiddenState, UnitCell
from nmt.ops.recurrence import State
from nmt.ops.scan import ScanUnit
from nmt.ops.unit import register
from nmt.registry import CELLS

with contextlib.suppress(ImportError):  # Triton is not installed everywhere
    import triton
    import triton.language as tl

    from nmt.ops.triton_tools import sigmoid

    @triton.jit
    def step(x, state, vectors, OPTIONS: tl.constexpr):
        a, b = x
        f = sigmoid(a + vectors[0] * state[0])
        if OPTIONS == 0:
            b = (1.0 - f) * b
        return (f * state[0] + b,)

    @triton.jit
    def gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
        a, b = x
        h = state[0]
        f = sigmoid(a + vectors[0] * h)
        if OPTIONS == 0:
            da = d[0] * (h - b) * f * (1.0 - f)
            db = d[0] * (1.0 - f)
        else:
            da = d[0] * h * f * (1.0 - f)
            db = d[0]
        return (da, db), (d[0] * f + da * vectors[0],), (da * h,)


@register("fading")
@dataclass(frozen=True, kw_only=True)
class Fading(ScanUnit):
    """f = sigmoid(a + v * h'), h = f * h' + (1 - f) * b, without (1 - f) if it is `open`; x holds a, b."""

    inputs: ClassVar[int] = 2
    vectors_each: ClassVar[int] = 1
    native_source: ClassVar[Path | None] = Path(__file__).with_suffix(".c")
    functions: ClassVar[str] = __name__

    open: bool = False

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        a, b = x.chunk(2, -1)
        f = torch.sigmoid(a + self.weights[0] * seen[0])
        return (f * state[0] + (b if self.open else (1 - f) * b),)


@dataclass(frozen=True, kw_only=True)
class FadingOptions:
    """Options of the cell."""

    open: bool = False


@CELLS.register("fading")
class FadingCell(UnitCell[HiddenState]):
    """Input products (2H): a, b."""

    Options = FadingOptions
    options: FadingOptions
    input_parts: ClassVar[tuple[int, ...]] = (1, 1)

    def _make_recurrent(self) -> None:
        self.fading_weight = nn.Parameter(torch.empty(self.hidden_size))

    def unit(self) -> Fading:
        return Fading(weights=(self.fading_weight,), open=self.options.open)
