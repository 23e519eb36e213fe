"""LRN, the lightweight recurrent network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt import ops
from nmt.cells.base import HiddenState, UnitCell
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class LRNOptions:
    """Options of LRN."""

    tanh: bool = False
    """The new state is the tanh of the equation."""


@CELLS.register("lrn")
class LRN(UnitCell[HiddenState]):
    """Lightweight recurrent network (Zhang and Sennrich, ACL 2019).

        i = sigmoid(p + h')
        f = sigmoid(q - h')
        h = i * r + f * h'

    p, q, r [H] are products of the input, h' the previous state. There is no recurrent matrix.
    Input products (3H, normalised together): p, q, r.
    """

    Options = LRNOptions
    options: LRNOptions
    input_parts: ClassVar[tuple[int, ...]] = (3,)

    def unit(self) -> ops.LRN:
        return ops.LRN(tanh=self.options.tanh)
