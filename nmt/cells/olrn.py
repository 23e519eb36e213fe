"""oLRN, the lightweight recurrent network with an output gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt import ops
from nmt.cells.base import HiddenState, UnitCell
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class OLRNOptions:
    """Options of oLRN."""

    tanh: bool = False
    """The cell value c is the tanh of its equation, before the output gate."""


@CELLS.register("olrn")
class OLRN(UnitCell[HiddenState]):
    """Lightweight recurrent network with an output gate (Zhang and Sennrich, ACL 2019).

        i = sigmoid(p + h')
        f = sigmoid(q - h')
        c = i * r + f * h'
        o = sigmoid(s - c)
        h = o * c

    p, q, r, s [H] are products of the input, h' the previous state: the gated h is carried,
    there is no other memory. Input products (4H, normalised together): p, q, r, s.
    """

    Options = OLRNOptions
    options: OLRNOptions
    input_parts: ClassVar[tuple[int, ...]] = (4,)

    def unit(self) -> ops.OLRN:
        return ops.OLRN(tanh=self.options.tanh)
