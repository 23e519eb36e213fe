"""A unit over sequences in both directions, as the first layer of an encoder has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from nmt.ops.conditional.reference import run_written_out
from nmt.ops.dispatch import choose
from nmt.ops.unit import Projection, Unit

__all__ = ["Both", "Direction", "both_directions"]


class Direction(NamedTuple):
    """The cell of one direction."""

    unit: Unit | None
    """None for a cell of whose inside nothing is known"""
    projection: Projection | None


class Both(NamedTuple):
    """What `both_directions` yields."""

    outputs: Tensor
    """[B, T, 2H] in input order, those of the forward direction first"""
    last: tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
    """The last state computed of each direction, tensors [B, H]"""


def both_directions(
    ahead: Direction, back: Direction, x: Tensor, *, mask: Tensor, written_out: Callable[[], Both]
) -> Both:
    """Run `ahead` over x [B, T, D] from the first time step to the last and `back` the other way, from zeros.

    Rows keep their state where mask [B, T] is false. `written_out` computes the same, one direction after the other:
    it runs where no kernel does both at once.
    """
    run = choose("both_directions", run_written_out, like=x)
    result: Both = run(ahead, back, x, mask=mask, written_out=written_out)
    return result
