"""What the kernels of a unit are to all that runs them, in C on a CPU as in Triton on a GPU.

Letters: D directions, B rows, T time steps, H channels, P tensors of the state, k products of the input.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from nmt.ops.product import recurrent_matrix
from nmt.ops.recurrence import State
from nmt.ops.unit import Unit


class Sizes(NamedTuple):
    """Of one batch of sequences."""

    length: int
    """T"""
    batch: int
    """B"""
    hidden: int
    """H"""
    dtype: torch.dtype
    """of the recurrent products"""
    device: torch.device

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Room for a tensor, in the type of the products unless another is said."""
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)


class States(NamedTuple):
    """States of n time steps."""

    parts: Tensor
    """fp32 [P, n, B, H], h first"""
    operand: Tensor
    """[n, B, H]: h once more in the type of the products; the same memory where that is fp32"""

    @classmethod
    def empty(cls, parts: int, length: int, sizes: Sizes) -> States:
        """Room for `length` states."""
        wide = sizes.empty(parts, length, sizes.batch, sizes.hidden, dtype=torch.float32)
        same = sizes.dtype == torch.float32
        return cls(wide, wide[0] if same else sizes.empty(length, sizes.batch, sizes.hidden))

    def each(self) -> list[States]:
        """The states of one time step each, n = 1."""
        return [States(*step) for step in zip(self.parts.split(1, 1), self.operand.split(1), strict=True)]

    def at(self, start: int, end: int) -> States:
        """The states of the time steps from `start` to before `end`."""
        return States(self.parts[:, start:end], self.operand[start:end])

    def put(self, t: int, state: Tensor) -> None:
        """Set the state of time step t to [P, B, H]."""
        self.parts[:, t].copy_(state)
        if self.operand.data_ptr() != self.parts.data_ptr():
            self.operand[t].copy_(state[0])


class Step(NamedTuple):
    """A time step of all rows."""

    t: int
    x: Tensor
    """[B, 1, kH], the input"""
    before: States
    after: States
    mask: Tensor | None
    """[B, 1]; rows keep their state where it is 0"""


def steps_of(x: Sequence[Tensor], before: States, after: States, mask: Sequence[Tensor | None]) -> list[Step]:
    """All time steps: cutting tensors once is faster than anew in each of them."""
    each = zip(x, before.each(), after.each(), mask, strict=True)
    return [Step(t, *parts) for t, parts in enumerate(each)]


class Kernel:
    """A unit over one batch of sequences: some time steps forward, then the same ones backward.

    Subclasses write what one step computes; the loops over time (`nmt.ops.loop`) call them. `saved` is what the
    backward pass reads of the forward pass besides the states, `written` what the gradients of the weights read of the
    backward pass: tensors [T, B, width * H] in the type of the products.
    """

    recorded: ClassVar[bool] = False
    """Whether loops over it become CUDA graphs, of which there is one for each shape."""
    saved_widths: ClassVar[tuple[int, ...]] = ()
    written_widths: ClassVar[tuple[int, ...]] = ()

    def __init__(self, unit: Unit, sizes: Sizes, *, saved: Sequence[Tensor] | None = None) -> None:
        """`saved` is what a forward pass has saved; without it there is room for that."""
        self.unit, self.sizes = unit, sizes
        self.matrices = [recurrent_matrix(recurrent.weight, sizes) for recurrent in unit.recurrents]
        self.parameters = [[_operand(part) for part in recurrent[1:]] for recurrent in unit.recurrents]
        """Of each matrix bias, scale and offset, fp32; the last two None without layer norm."""
        self.saved = self._room(self.saved_widths) if saved is None else tuple(saved)

    def _room(self, widths: Sequence[int]) -> tuple[Tensor, ...]:
        length, batch, hidden = self.sizes[:3]
        return tuple(self.sizes.empty(length, batch, width * hidden) for width in widths)

    @functools.cached_property
    def written(self) -> tuple[Tensor, ...]:
        """What the backward pass writes, of `written_widths`."""
        return self._room(self.written_widths)

    @classmethod
    def problem(cls, unit: Unit, *, dtype: torch.dtype, hidden: int) -> str | None:
        """Why it cannot run `unit` with products of this type and `hidden` channels, in a few words; None if it can."""
        return None

    @classmethod
    def whole(
        cls, units: Sequence[Unit], x: Tensor, state: Sequence[State] | None, mask: Tensor | None, *, reverse: bool
    ) -> tuple[Tensor, Tensor] | None:
        """All steps of all sequences at once, with autograd; None where steps have to be run one by one.

        x [D, B, T, kH]; one unit for each direction, of one design; state: that of each direction, tensors [B, H], or
        None for zeros; mask [B, T] or None, rows keep their state where it is 0. One direction runs as `reverse` says,
        of two the first runs forward and the second backward. Returns h after each step [D, B, T, H] in input order,
        and the last state computed fp32 [D, P, B, H].
        """
        return None

    @property
    def deferrable(self) -> bool:
        """Whether all of its work is C kernels for bf16, which can run later; see `nmt.ops.native.in_one_team`."""
        in_c = not self.recorded and all(matrix.packed for matrix in self.matrices)
        return in_c and self.sizes.dtype == torch.bfloat16

    def forward(self, step: Step) -> None:
        """Write the state after the step."""
        raise NotImplementedError

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> Tensor | None:
        """The gradient of `forward`; writes dx [B, 1, kH].

        The gradient of the state after the step is `gradient` fp32 [P, B, H]; to h's are added `pending` [B, H], what
        the call for the step after this one returned, and d_output [B, 1, H]. What the state before gets is left in
        `gradient`, but for a product [B, H] that may be returned for the next call to add.
        """
        raise NotImplementedError

    def weight_gradients(self, before: States, dx: Tensor) -> list[Tensor]:
        """The gradients of all weights in their order, from the states before all T steps and dx [T, B, kH] of all."""
        raise NotImplementedError


def _operand(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.detach().float().contiguous()


def rows_of(x: Tensor | None) -> tuple[Tensor | None, int]:
    """An optional tensor [B, 1, ...] and the step in memory from row to row, as kernels take them."""
    return x, 0 if x is None else x.stride(0)
