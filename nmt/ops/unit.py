"""What loops over several cells need to know of a recurrent unit, whichever kernels run them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from torch import Tensor

from nmt.ops.recurrence import Recurrent


class Unit(NamedTuple):
    """A unit with its recurrent parameters."""

    name: str
    weights: tuple[Tensor, ...] = ()
    """SRU: both peepholes, forget first; others: for each recurrent matrix what `flat` makes of its parameters."""
    options: Mapping[str, Any] = MappingProxyType({})
    normalized: bool = False
    """Whether layer norm is applied to its recurrent products."""

    @property
    def words(self) -> str:
        """Name and options in one line: options that are true by their names, those that are words as they are."""
        chosen = [name if value is True else value for name, value in self.options.items() if value is not False]
        return " ".join([self.name, *chosen])


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
