"""SSRU, the simpler simple recurrent unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from nmt import ops
from nmt.cells.base import InputGatedCell, MemoryState
from nmt.cells.initializers import INIT_RANGE
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class SSRUOptions:
    """Options of SSRU."""

    forget_bias: float = 0.0
    """Initial bias of the forget gate; with a larger value, a new model keeps its memory for longer."""


@CELLS.register("ssru")
class SSRU(InputGatedCell[MemoryState]):
    """Simpler simple recurrent unit (Kim et al., "From Research to Production and Back", WNGT 2019), as in Marian.

        f = sigmoid(x_f + b_f)
        c = f * c' + (1 - f) * x_c
        h = relu(c)

    The x [H] are products of the input, c' the previous memory; b_f [H]: `forget_gate_bias`. The gate depends on the
    input only. Input products (2H, normalised separately): x_f, x_c.
    """

    Options = SSRUOptions
    State = MemoryState
    options: SSRUOptions
    input_parts: ClassVar[tuple[int, ...]] = (1, 1)

    def _make_recurrent(self) -> None:
        self.forget_gate_bias = self._bias()

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        nn.init.constant_(self.forget_gate_bias, self.options.forget_bias)

    def unit(self) -> ops.SSRU:
        return ops.SSRU(weights=(self.forget_gate_bias,))
