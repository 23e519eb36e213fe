"""SRU, the simple recurrent unit."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from nmt import ops
from nmt.cells.base import MemoryState, NoOptions, UnitCell
from nmt.registry import CELLS


@CELLS.register("sru")
class SRU(UnitCell[MemoryState]):
    """Simple recurrent unit (Lei et al., EMNLP 2018), as in Zero: no bias, no tanh, no scaling.

        f = sigmoid(x_f + v_f * c')
        c = f * c' + (1 - f) * x_c
        r = sigmoid(x_r + v_r * c')
        h = r * c + (1 - r) * x_h

    The x [H] are products of the input, c' the previous memory; both gates read c' through the
    vectors v_f, `peephole_forget` [H], and v_r, `peephole_reset` [H].
    Input products (4H, normalised together): x_r, x_f, x_c, x_h.
    """

    State = MemoryState
    options: NoOptions
    input_parts: ClassVar[tuple[int, ...]] = (4,)

    def _make_recurrent(self) -> None:
        self.peephole_forget = nn.Parameter(torch.empty(self.hidden_size))
        self.peephole_reset = nn.Parameter(torch.empty(self.hidden_size))

    def unit(self) -> ops.SRU:
        return ops.SRU(weights=(self.peephole_forget, self.peephole_reset))
