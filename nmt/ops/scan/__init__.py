"""Common parts of units whose steps need no matrix product, so that one kernel runs all steps.

Such a unit defines its equation and three things for its kernels, see `ScanUnit`. Loops over time, masks, directions,
pairs of cells and the sums of the gradients are in scan.h for C and in `nmt.ops.scan.triton` for Triton.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.ops.native import kernel
from nmt.ops.product import row_sums
from nmt.ops.recurrence import State, readable_rows
from nmt.ops.unit import Kernel, Sizes, States, Step, Unit


@dataclass(frozen=True, kw_only=True)
class ScanUnit(Unit):
    """A unit without matrices; its weights are vectors [H], its options booleans."""

    native: ClassVar[str | None] = "nmt.ops.scan:NativeScan"
    triton: ClassVar[str | None] = "nmt.ops.scan.triton:TritonScan"
    vectors_each: ClassVar[int] = 0
    """V: number of its weights."""
    native_source: ClassVar[Path | None] = None
    """C file with the definitions that scan.h requires; None: that of its name beside this file."""
    functions: ClassVar[str | None] = None
    """Module with its `step` and `gradient` in Triton, for `nmt.ops.scan.triton`; None: those that are there."""
    wide_memory: ClassVar[bool] = False
    """Whether Triton keeps the states other than h in fp32, for a gradient that jumps where they cross some value."""
    cells: ClassVar[int] = 1

    @functools.cached_property
    def native_file(self) -> Path:
        return self.native_source or Path(__file__).with_name(f"{self.name}.c")

    @property
    def code(self) -> int:
        """Its options, the first in the lowest bit."""
        bits = 0
        for place, field in enumerate(fields(self)[2:]):  # without weights and normalized
            bits |= getattr(self, field.name) << place
        return bits


@dataclass(frozen=True, kw_only=True)
class Pair(ScanUnit):
    """Two cells of one design; the higher cell starts from the state of the lower cell.

    The products x and the weights are first those of the lower cell, then those of the higher cell.
    """

    cells: ClassVar[int] = 2
    cell: ScanUnit
    """The design."""

    def __post_init__(self) -> None:
        cell = self.cell
        vars(self).update(
            name=cell.name,
            inputs=2 * cell.inputs,
            states=cell.states,
            vectors_each=2 * cell.vectors_each,
            native_source=cell.native_source,
            functions=cell.functions,
            wide_memory=cell.wide_memory,
        )

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        count = self.cell.vectors_each
        lower, higher = (self.cell.with_weights(part) for part in (self.weights[:count], self.weights[count:]))
        first, second = x.chunk(2, -1)
        between = lower.equation(first, state, seen)
        return cast(State, higher.equation(second, between, between))

    @property
    def code(self) -> int:
        return self.cell.code

    @property
    def words(self) -> str:
        return f"pair {self.cell.words}"


def pair_of(lower: Unit, higher: Unit) -> Pair | None:
    """Both cells as one unit, None if they are not scan units of one design."""
    if not isinstance(lower, ScanUnit) or lower.design != higher.design:
        return None
    return Pair(cell=cast(ScanUnit, lower.design), weights=lower.weights + higher.weights)


class Given(NamedTuple):
    """The inputs of the kernels for D directions; two directions run at once, a single one as `reverse` says."""

    unit: ScanUnit  # its design
    reverse: bool
    mask: Tensor | None  # [B, T]
    x: Tensor  # [D, B, T, kH]
    vectors: Tensor | None  # the weights, fp32 [D, V, H]
    first: Tensor | None  # the initial state, fp32 [D, P, B, H]; None for zeros


class Scan(Kernel):
    """A scan unit over one batch: all steps of all directions, or one step per call."""

    unit: ScanUnit

    def __init__(self, unit: Unit, sizes: Sizes, *, saved: Sequence[Tensor] | None = None) -> None:
        self.unit, self.sizes, self.saved, self.matrices = cast("ScanUnit", unit), sizes, (), []

    @classmethod
    def run_forward(cls, given: Given) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs [D, B, T, H] in the type of x, the last state fp32 [D, P, B, H] and other values for the gradient."""
        raise NotImplementedError

    @classmethod
    def run_backward(
        cls, given: Given, outputs: Tensor, kept: Tensor, d_outputs: Tensor | None, d_last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of x, of the vectors in each row [D, V, B, H] and of the first state; d_last is contiguous."""
        raise NotImplementedError

    @classmethod
    def whole(
        cls, units: Sequence[Unit], x: Tensor, state: Sequence[State] | None, mask: Tensor | None, *, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        first = None if state is None else torch.stack([*map(torch.stack, state)]).float()
        vectors = torch.stack([torch.stack(unit.weights) for unit in units]).float() if units[0].weights else None
        outputs, last = _Whole.apply(cls, units[0].design, reverse, mask, x, vectors, first)
        return outputs, last

    @functools.cached_property
    def vectors(self) -> Tensor | None:
        """The weights in the form for one direction, fp32 [1, V, H]; None without weights."""
        return torch.stack(self.unit.weights).detach().float()[None] if self.unit.weights else None

    @functools.cached_property
    def d_vectors(self) -> Tensor:
        """The gradients of the weights in each row, fp32 [1, V, B, H]; the backward pass of each step adds to them."""
        _, batch, hidden, *_ = self.sizes
        return self.sizes.empty(1, self.unit.vectors_each, batch, hidden, dtype=torch.float32).zero_()

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        return list(_over_rows(self.d_vectors)[0]) if self.unit.weights else []


def _over_rows(d_vectors: Tensor) -> Tensor:
    """Sums [D, V, H] of the vectors' gradients in each row [D, V, B, H], with the same bits every time."""
    directions, vectors, batch, hidden = d_vectors.shape
    by_row = d_vectors.permute(2, 0, 1, 3).reshape(batch, 1, directions * vectors * hidden)
    return row_sums(by_row).view(directions, vectors, hidden)


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: type[Scan], unit: ScanUnit, reverse: bool, *tensors: Any) -> tuple[Tensor, Tensor]:
        outputs, last, kept = kernel.run_forward(Given(unit, reverse, *tensors))
        ctx.kernel, ctx.unit, ctx.reverse = kernel, unit, reverse
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, outputs, kept)
        return outputs, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor | None, d_last: Tensor | None) -> tuple[Any, ...]:
        *tensors, outputs, kept = ctx.saved_tensors
        given, (directions, batch, _, hidden) = Given(ctx.unit, ctx.reverse, *tensors), outputs.shape
        if d_last is None:
            d_last = given.x.new_zeros(directions, ctx.unit.states, batch, hidden, dtype=torch.float32)
        dx, rows, d_first = ctx.kernel.run_backward(given, outputs, kept, d_outputs, d_last.contiguous())
        d_vectors = None if given.vectors is None else _over_rows(rows)
        return None, None, None, None, dx, d_vectors, None if given.first is None else d_first


_NONE: Final = torch.empty(0)


class NativeScan(Scan):
    """A scan unit computed by its C kernels (nmt/ops/native/scan.h); a call can have any number of steps."""

    @classmethod
    def run_forward(cls, given: Given) -> tuple[Tensor, Tensor, Tensor]:
        unit, x, mask = given.unit, readable_rows(given.x), None if given.mask is None else given.mask.bool()
        directions, batch, length, width = x.shape
        hidden = width // unit.inputs
        outputs = x.new_empty(batch, length, directions, hidden).permute(2, 0, 1, 3)
        states = torch.empty(directions, unit.states, length + 1, batch, hidden)
        last = torch.empty(directions, unit.states, batch, hidden)
        for d in range(directions):
            reverse = given.reverse or d == 1
            before, after, begin, end = states[d][:, :-1], states[d][:, 1:], 0, -1
            if reverse:
                before, after, begin, end = after, before, -1, 0
            states[d][:, begin] = 0 if given.first is None else given.first[d]
            vectors = None if given.vectors is None else given.vectors[d]
            _run("forward", unit, x[d], vectors, mask, (before, after), *_steps(outputs[d]), reverse=reverse)
            last[d] = states[d][:, end]
        return outputs, last, states

    @classmethod
    def run_backward(
        cls, given: Given, outputs: Tensor, kept: Tensor, d_outputs: Tensor | None, d_last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        unit, x, mask = given.unit, readable_rows(given.x), None if given.mask is None else given.mask.bool()
        dx, gradient = torch.empty_like(x, memory_format=torch.contiguous_format), d_last.clone()
        d_vectors = d_last.new_zeros(len(outputs), unit.vectors_each, *d_last.shape[2:])
        for d in range(len(outputs)):
            reverse = given.reverse or d == 1
            added = _steps(None if d_outputs is None else readable_rows(d_outputs[d]))
            vectors = None if given.vectors is None else given.vectors[d]
            before, after = kept[d][:, :-1], kept[d][:, 1:]
            states, results = (after, before) if reverse else (before, after), (gradient[d], *_steps(dx[d]))
            _run("backward", unit, x[d], vectors, mask, states, *added, *results, d_vectors[d], reverse=reverse)
        return dx, d_vectors, gradient

    def forward(self, step: Step) -> None:
        _, x, before, after, mask = step
        out = _steps(after.operand.transpose(0, 1))
        _run("forward", self.unit, x, self.vectors, mask, (before.parts, after.parts), *out)

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> None:
        _, x, before, after, mask = step
        if pending is not None:
            kernel("add_rows", pending.dtype)(pending, pending.stride(0), gradient[0], *pending.shape)
        results = (*_steps(d_output), gradient, *_steps(dx), self.d_vectors)
        _run("backward", self.unit, x, self.vectors, mask, (before.parts, after.parts), *results)


def _run(
    name: str,
    unit: ScanUnit,
    x: Tensor,
    vectors: Tensor | None,
    mask: Tensor | None,
    states: tuple[Tensor, Tensor],
    *more: Any,
    reverse: bool = False,
) -> None:
    """Call a kernel of scan.h, forward or backward, which reads the inputs [B, n, kH], the weights, the mask and the
    states [P, n, B, H] before and after each step; `more` are its arguments between the states and the sizes."""
    (before, after), weights = states, _NONE if vectors is None else vectors
    kernel(f"{unit.name}_{name}", x.dtype, source=unit.native_file)(
        *(*_steps(x), weights, *_steps(mask)),
        *(before, before.stride(0), after, after.stride(0), after.stride(2), after.stride(1), *more),
        *(len(x), x.size(1), x.size(-1) // unit.inputs, reverse, unit.code << 1 | unit.cells - 1),
    )


def _steps(x: Tensor | None) -> tuple[Tensor | None, int, int]:
    """A tensor [B, n, ...] and its strides from row to row and in time."""
    return (None, 0, 0) if x is None else (x, x.stride(0), x.stride(1))
