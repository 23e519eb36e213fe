"""minGRU, a GRU whose gate looks at the input alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from nmt import ops
from nmt.cells.initializers import INIT_RANGE
from nmt.cells.state import HiddenState
from nmt.cells.unit import InputGatedCell
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class MinGRUOptions:
    """Options of minGRU."""

    positive: bool = False
    """The candidate is positive: g + 0.5 where g >= 0 and sigmoid(g) elsewhere, as in the authors' log-space form;
    without it the unit is that of the paper's equations."""
    forget_bias: float = 0.0
    """What the bias of 1 - z, the gate that keeps the old state, starts from; the greater, the longer a state lasts at
    first."""


@CELLS.register("min_gru")
class MinGRU(InputGatedCell[HiddenState]):
    """Minimal gated recurrent unit (Feng et al., "Were RNNs All We Needed?", 2024).

        z = sigmoid(x_z + b_z)
        g = x_h + b_h
        h = (1 - z) * h' + z * g

    The x [H] are products of the input, h' the state before; b_z, b_h [H]: `update_gate_bias`, `candidate_bias`. The
    gate looks at the input alone. Input products (2H, normalised each for itself): x_z, x_h.
    """

    Options = MinGRUOptions
    options: MinGRUOptions
    input_parts: ClassVar[tuple[int, ...]] = (1, 1)

    def _make_recurrent(self) -> None:
        self.update_gate_bias = self._bias()
        self.candidate_bias = self._bias()

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        nn.init.constant_(self.update_gate_bias, -self.options.forget_bias)

    def unit(self) -> ops.MinGRU:
        weights = self.update_gate_bias, self.candidate_bias
        return ops.MinGRU(weights=weights, positive=self.options.positive)
