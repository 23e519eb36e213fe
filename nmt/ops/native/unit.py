"""What a unit's C kernels look like to the loops over time that call them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, cast

import torch
from torch import Tensor

from nmt.ops.unit import Unit

KERNELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "atr": "nmt.ops.atr.native:ATRKernel",
        "gru": "nmt.ops.gru.native:GRUKernel",
        "lrn": "nmt.ops.lrn.native:LRNKernel",
        "lstm": "nmt.ops.lstm.native:LSTMKernel",
        "olrn": "nmt.ops.olrn.native:OLRNKernel",
        "sru": "nmt.ops.sru.native:SRUKernel",
    }
)
"""The one place that lists native kernels: unit -> "module:class"."""


def supported(unit: Unit) -> bool:
    """Whether there is a kernel for this unit with these options."""
    return unit.name in KERNELS and not unit.normalized and unit.options.get("activation") != "output"


class States(NamedTuple):
    """States of n time steps."""

    parts: Tensor
    """[P, n, B, H] fp32, h first"""
    narrow: Tensor
    """[n, B, H]: h once more in the type of the matrix products; the same memory where that is fp32"""

    @classmethod
    def empty(cls, parts: int, length: int, batch: int, hidden: int, *, dtype: torch.dtype) -> States:
        """Room for `length` states."""
        wide = torch.empty(parts, length, batch, hidden, dtype=torch.float32)
        return cls(wide, wide[0] if dtype == torch.float32 else torch.empty(length, batch, hidden, dtype=dtype))

    @property
    def strides(self) -> tuple[int, int]:
        """Steps in memory from one row to the next and from one time step to the next, of all tensors."""
        return self.narrow.stride(1), self.narrow.stride(0)

    def split(self, size: int) -> list[States]:
        """The states of `size` consecutive time steps each."""
        pieces = zip(self.parts.split(size, 1), self.narrow.split(size), strict=True)
        return [States(parts, narrow) for parts, narrow in pieces]

    def at(self, start: int, end: int) -> States:
        """The states of the time steps from `start` to before `end`."""
        return States(self.parts[:, start:end], self.narrow[start:end])

    def put(self, t: int, state: tuple[Tensor, ...]) -> None:
        """Set the state of time step t."""
        for part, value in zip(self.parts, state, strict=True):
            part[t].copy_(value)
        self.narrow[t].copy_(state[0])


class Kernel:
    """A unit over one batch of sequences: forward, then backward; keeps what its gradient needs.

    B rows, T time steps, k products of the input, n consecutive steps of them at once.
    """

    parts: ClassVar[int] = 1
    """P, how many tensors its state has."""
    products: ClassVar[int]
    """k, how many products of the input it takes."""
    whole: ClassVar[bool] = True
    """Whether it runs over many time steps by itself: no step needs a matrix product."""
    kept: tuple[Tensor, ...] = ()
    """What the backward pass reads of the forward pass besides the states. Whoever hands it to autograd to keep, so
    that it is freed in time, takes it out meanwhile."""

    def __init__(self, unit: Unit, *, length: int, batch: int, hidden: int, dtype: torch.dtype) -> None:
        self.unit = unit
        self.length, self.batch, self.hidden, self.dtype = length, batch, hidden, dtype

    @property
    def kernels_alone(self) -> bool:
        """Whether `forward` and `backward` are kernels for bf16 and nothing else, see `nmt.ops.native.in_one_team`."""
        return self.dtype == torch.bfloat16

    def forward(
        self, x: Tensor, before: States, after: States, mask: Tensor | None, *, start: int, reverse: bool
    ) -> None:
        """From the inputs x [B, n, kH] and `before` to `after`, for the n time steps from `start` on.

        Where n > 1, `before` and `after` are the same states one step apart. Rows keep their state where mask
        [B, n] is false. With `reverse` the last of the steps comes first.
        """
        raise NotImplementedError

    def backward(
        self,
        x: Tensor,
        before: States,
        after: States,
        mask: Tensor | None,
        *,
        start: int,
        reverse: bool,
        gradient: Tensor,
        outputs: Tensor | None,
        dx: Tensor,
    ) -> None:
        """The gradient of `forward`.

        `gradient` [P, B, H] fp32 comes in as that of the state that comes out last, and leaves as that of the state
        that went in first; `outputs` [B, n, H], if any, is added to h's at each step. dx [B, n, kH] is written.
        """
        raise NotImplementedError

    def weight_gradients(self, before: Tensor) -> tuple[Tensor, ...]:
        """The gradients of the unit's weights after all steps, from h before each of them [T, B, H].

        Ends the backward pass.
        """
        return ()


def make_kernel(unit: Unit, *, length: int, batch: int, hidden: int, dtype: torch.dtype) -> Kernel:
    """The kernel of a unit for one batch."""
    return kernel_class(unit.name)(unit, length=length, batch=batch, hidden=hidden, dtype=dtype)


def make_pair(
    lower: Unit, higher: Unit, weights: Sequence[Tensor], *, length: int, batch: int, hidden: int, dtype: torch.dtype
) -> tuple[Kernel, Kernel]:
    """The kernels of two cells for one batch; `weights` are those of the lower one and then those of the higher."""
    split = len(lower.weights)
    cells = lower._replace(weights=tuple(weights[:split])), higher._replace(weights=tuple(weights[split:]))
    first, second = (make_kernel(cell, length=length, batch=batch, hidden=hidden, dtype=dtype) for cell in cells)
    return first, second


@functools.cache
def kernel_class(name: str) -> type[Kernel]:
    """The class listed for a unit."""
    module, _, member = KERNELS[name].partition(":")
    return cast("type[Kernel]", getattr(importlib.import_module(module), member))


def mask_arguments(mask: Tensor | None) -> tuple[Tensor | None, int, int]:
    """A mask [B, n] of bools and its strides, as the C functions take them."""
    return (None, 0, 0) if mask is None else (mask, mask.stride(0), mask.stride(1))


def output_arguments(outputs: Tensor | None) -> tuple[Tensor | None, int, int]:
    """The gradient of outputs [B, n, H] and its strides, as the C functions take them."""
    return (None, 0, 0) if outputs is None else (outputs, outputs.stride(0), outputs.stride(1))
