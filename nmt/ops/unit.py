"""The description of a recurrent unit for all code that runs it: an equation, recurrent weights, options."""

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
"""All units by name; `register` adds to it. Importing `nmt.ops.units` registers the units of nmt."""


class Update(NamedTuple):
    """How a memory changes in one time step, element by element: m = input * value + forget * m'.

    All are [..., H]; m is the last tensor of the state: c where there is one, else h.
    """

    value: Tensor
    """The written value."""
    input: Tensor
    """The share of the value that is written."""
    forget: Tensor
    """The share of the previous memory that is kept."""


class GateValues(NamedTuple):
    """The gates of a unit in one time step."""

    named: dict[str, Tensor] = {}
    """The gates [..., H], by their names in the unit's equation."""
    update: Update | None = None
    """None for a unit whose memory does not change in this way."""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit with its weights, as a cell passes it to `nmt.ops.sequence` and to the loops over several cells.

    A subclass is a frozen dataclass whose own fields are the options: words and booleans. Two units without weights
    are equal if they have the same class and the same options.
    """

    name: ClassVar[str]
    """The name under which it is registered."""
    inputs: ClassVar[int]
    """k: its input products are [..., kH]."""
    states: ClassVar[int] = 1
    """P: number of tensors [N, H] of its state, h first."""
    matrices: ClassVar[int] = 0
    """Number of its recurrent matrices."""
    native: ClassVar[str | None] = None
    """Path "module:class" of its `nmt.ops.kernel.Kernel` in C, for a CPU; None if there is none."""
    triton: ClassVar[str | None] = None
    """Path "module:class" of its `nmt.ops.kernel.Kernel` in Triton, for a GPU; None if there is none."""

    weights: tuple[Tensor, ...] = ()
    """For each recurrent matrix its parameters in the order of `flat`; then vectors, such as peepholes."""
    normalized: bool = False
    """Whether layer norm is applied to its recurrent products."""

    def equation(self, x: Tensor, state: State, seen: State) -> State:
        """One time step: the new state, [N, H] each, from the input products x [N, kH] and the previous state.

        Products and gates read `seen`, which equals `state` except with recurrent dropout; `state` itself is carried.
        All are in at least fp32.
        """
        raise NotImplementedError

    def gate_values(self, x: Tensor, state: State) -> GateValues:
        """The gates of the time step that `equation` computes from the same x [N, kH] and previous state [N, H]."""
        return GateValues()

    def output(self, h: Tensor) -> Tensor:
        """Its output, [..., H], when its state has this h."""
        return torch.tanh(h) if self.tanh_output else h

    @property
    def tanh_output(self) -> bool:
        """Whether its output is the tanh of h, while h itself is carried without tanh."""
        return False

    @property
    def usual(self) -> bool:
        """Whether its kernels support its options."""
        return True

    @property
    def recurrents(self) -> list[Recurrent]:
        """The parameters of its matrices."""
        size = 4 if self.normalized else 2
        return [Recurrent(*self.weights[i : i + size]) for i in range(0, size * self.matrices, size)]

    @property
    def vectors(self) -> tuple[Tensor, ...]:
        """The weights that do not belong to a matrix."""
        return self.weights[(4 if self.normalized else 2) * self.matrices :]

    @property
    def design(self) -> Unit:
        """The same unit without weights, which can be compared and used as a key."""
        return replace(self, weights=())

    @property
    def words(self) -> str:
        """The design in one line: its name, the names of boolean options that are true, and the words of the others."""
        own = [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "weights"]
        chosen = [name if value is True else value for name, value in own if value is not False]
        return " ".join([self.name, *chosen])

    def with_weights(self, weights: Sequence[Tensor]) -> Any:
        """The same unit with other weights."""
        return replace(self, weights=tuple(weights))


def register(name: str) -> Callable[[U], U]:
    """Decorator that registers a unit under `name`; each name can be registered only once."""

    def add(unit: U) -> U:
        if name in UNITS:
            raise ConfigError(f"unit '{name}' is already registered by {UNITS[name]!r}")
        unit.name = name
        UNITS[name] = unit
        return unit

    return add


class Projection(NamedTuple):
    """A product with a matrix: x W', normalised if there is a scale, plus the bias, if any."""

    weight: Tensor
    """[m, n]"""
    bias: Tensor | None = None
    """[m]"""
    scale: Tensor | None = None
    """[m], layer norm; None without layer norm"""
    offset: Tensor | None = None
    """[m]"""
    widths: tuple[int, ...] = ()
    """Widths of the parts that are normalised separately; empty: all values together"""


def flat(*matrices: Recurrent) -> tuple[Tensor, ...]:
    """The parameters of all matrices in one tuple: for each its matrix, bias and, with layer norm, scale and offset."""
    return tuple(part for matrix in matrices for part in matrix if part is not None)
