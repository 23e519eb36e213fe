"""The state that a unit carries from one time step to the next, and operations on any such state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor


class CellState(Protocol):
    """A NamedTuple of tensors [N, H]; `h` is the first."""

    def __init__(self, *tensors: Tensor) -> None: ...

    @property
    def h(self) -> Tensor: ...

    def __iter__(self) -> Iterator[Tensor]: ...


S = TypeVar("S", bound=CellState)


def reorder_state(state: S, rows: Tensor) -> S:
    """The state whose row n is row rows[n] of `state`; rows [M] int64, repetitions allowed."""
    return type(state)(*(tensor.index_select(0, rows) for tensor in state))


def select_state(mask: Tensor, new: S, old: S) -> S:
    """Rows of `new` where mask [N] or [N, 1] is true or 1, rows of `old` elsewhere."""
    live = mask.bool().reshape(-1, 1)
    return type(new)(*(torch.where(live, after, before) for after, before in zip(new, old, strict=True)))


class HiddenState(NamedTuple):
    """The state of units whose only memory is their output."""

    h: Tensor
    """[N, H]"""

    def reorder(self, rows: Tensor) -> HiddenState:
        """Rows rows[0], rows[1], ... of this state."""
        return reorder_state(self, rows)


class MemoryState(NamedTuple):
    """The state of units with a memory cell besides their output."""

    h: Tensor
    """[N, H]"""
    c: Tensor
    """[N, H]"""

    def reorder(self, rows: Tensor) -> MemoryState:
        """Rows rows[0], rows[1], ... of this state."""
        return reorder_state(self, rows)
