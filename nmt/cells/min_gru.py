"""minGRU, a GRU whose gate depends on the input only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from nmt import ops
from nmt.cells.base import HiddenState, InputGatedCell
from nmt.cells.initializers import INIT_RANGE
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class MinGRUOptions:
    """Options of minGRU."""

    positive: bool = False
    """Make the candidate positive: g + 0.5 where g >= 0 and sigmoid(g) elsewhere, as in the authors' log-space form;
    without it, the unit follows the paper's equations."""
    forget_bias: float = 0.0
    """Initial bias of 1 - z, the gate that keeps the old state; with a larger value, a new model keeps its state for
    longer."""


@CELLS.register("min_gru")
class MinGRU(InputGatedCell[HiddenState]):
    """Minimal gated recurrent unit (Feng et al., "Were RNNs All We Needed?", 2024).

        z = sigmoid(x_z + b_z)
        g = x_h + b_h
        h = (1 - z) * h' + z * g

    The x [H] are products of the input, h' the previous state; b_z, b_h [H]: `update_gate_bias`, `candidate_bias`. The
    gate depends on the input only. Input products (2H, normalised separately): x_z, x_h.
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
