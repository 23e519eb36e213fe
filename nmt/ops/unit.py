"""A recurrent unit as everything that runs it sees it: an equation, its recurrent weights, its options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.ops.recurrence import Recurrent, State

U = TypeVar("U", bound="type[Unit]")

UNITS: Final[dict[str, type[Unit]]] = {}
"""All units by name; `register` adds to it. Those of nmt are there once `nmt.ops.units` has been imported."""


class Update(NamedTuple):
    """How a memory changes in one time step, element by element: m = input * value + forget * m'.

    All are [..., H]; m is the last tensor of the state: c where there is one, else h.
    """

    value: Tensor
    """What is written."""
    input: Tensor
    """How much of it."""
    forget: Tensor
    """How much of what was there stays."""


class GateValues(NamedTuple):
    """What a unit decides in one time step."""

    named: dict[str, Tensor] = {}
    """Its gates [..., H], by their names in its equation."""
    update: Update | None = None
    """None of a unit whose memory does not change in this way."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit with its weights: what a cell hands over whole to `nmt.ops.sequence` and to the loops over several cells.

    A subclass is a frozen dataclass whose own fields are the options: words and booleans. Two units without weights
    are equal if they are of one kind and have the same options.
    """

    name: ClassVar[str]
    """What it is registered as."""
    inputs: ClassVar[int]
    """k: its input products are [..., kH]."""
    states: ClassVar[int] = 1
    """P: how many tensors [N, H] its state has, h first."""
    matrices: ClassVar[int] = 0
    """How many recurrent matrices it has."""
    native: ClassVar[str | None] = None
    """Path "module:class" of its `nmt.ops.kernel.Kernel` in C, for a CPU; None without."""
    triton: ClassVar[str | None] = None
    """Path "module:class" of its `nmt.ops.kernel.Kernel` in Triton, for a GPU; None without."""

    weights: tuple[Tensor, ...] = ()
    """For each recurrent matrix what `flat` makes of its parameters; then vectors, such as peepholes."""
    normalized: bool = False
    """Whether layer norm is applied to its recurrent products."""

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        """One time step: the state after it, [N, H] each, from the input products x [N, kH] and the state before.

        Products and gates look at `seen`, which is `state` but for recurrent dropout; what is carried on is `state`.
        All are fp32 at least.
        """
        raise NotImplementedError

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        """The gates of the time step that `equation` computes from the same x [N, kH] and state before [N, H]."""
        return GateValues()

    def output(self, h: Tensor) -> Tensor:
        """What it puts out, [..., H], where its state has this h."""
        return torch.tanh(h) if self.tanh_output else h

    @property
    def tanh_output(self) -> bool:
        """Whether it puts out the tanh of h, which is carried on without it."""
        return False

    @property
    def usual(self) -> bool:
        """Whether its options are those that its kernels know."""
        return True

    @property
    def recurrents(self) -> list[Recurrent]:
        """The parameters of its matrices."""
        size = 4 if self.normalized else 2
        return [Recurrent(*self.weights[i : i + size]) for i in range(0, size * self.matrices, size)]

    @property
    def vectors(self) -> tuple[Tensor, ...]:
        """The weights that belong to no matrix."""
        return self.weights[(4 if self.normalized else 2) * self.matrices :]

    @property
    def design(self) -> Unit:
        """The same without weights, so that it can be compared and be a key."""
        return replace(self, weights=())

    @property
    def words(self) -> str:
        """The design in one line: name, options that are true by their names, those that are words as they are."""
        own = [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "weights"]
        chosen = [name if value is True else value for name, value in own if value is not False]
        return " ".join([self.name, *chosen])

    def with_weights(self, weights: Sequence[Tensor]) -> Any:
        """The same with other weights."""
        return replace(self, weights=tuple(weights))


def register(name: str) -> Callable[[U], U]:
    """Decorator that registers a unit under `name`; a name is taken only once."""

    def add(unit: U) -> U:
        if name in UNITS:
            raise ConfigError(f"unit '{name}' is already registered by {UNITS[name]!r}")
        unit.name = name
        UNITS[name] = unit
        return unit

    return add


class Projection(NamedTuple):
    """A product with a matrix: x W', normalised where there is a scale, plus bias where there is one."""

    weight: Tensor
    """[m, n]"""
    bias: Tensor | None = None
    """[m]"""
    scale: Tensor | None = None
    """[m], layer norm; None without"""
    offset: Tensor | None = None
    """[m]"""
    widths: tuple[int, ...] = ()
    """Widths of the parts that are normalised together, none for all of them"""


def flat(*matrices: Recurrent) -> tuple[Tensor, ...]:
    """Matrix, bias and, with layer norm, scale and offset of each."""
    return tuple(part for matrix in matrices for part in matrix if part is not None)
