"""minLSTM, an LSTM whose gates depend on the input only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from nmt import ops
from nmt.cells.base import HiddenState, InputGatedCell
from nmt.cells.initializers import INIT_RANGE
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class MinLSTMOptions:
    """Options of minLSTM."""

    positive: bool = False
    """Make the candidate positive: g + 0.5 where g >= 0 and sigmoid(g) elsewhere, as in the authors' log-space form;
    without it, the unit follows the paper's equations."""
    forget_bias: float = 0.0
    """Initial bias of the forget gate; with a larger value, a new model keeps its state for longer."""


@CELLS.register("min_lstm")
class MinLSTM(InputGatedCell[HiddenState]):
    """Minimal long short-term memory (Feng et al., "Were RNNs All We Needed?", 2024).

        f = sigmoid(x_f + b_f)      i likewise
        g = x_h + b_h
        h = f / (f + i) * h' + i / (f + i) * g

    The x [H] are products of the input, h' the previous state; b_f, b_i, b_h [H]: `forget_gate_bias`,
    `input_gate_bias`, `candidate_bias`. The gates depend on the input only; there is no memory besides h.
    Input products (3H; layer norm over the first 2H and the last H): x_f, x_i, x_h.
    """

    Options = MinLSTMOptions
    options: MinLSTMOptions
    input_parts: ClassVar[tuple[int, ...]] = (2, 1)

    def _make_recurrent(self) -> None:
        self.forget_gate_bias = self._bias()
        self.input_gate_bias = self._bias()
        self.candidate_bias = self._bias()

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        nn.init.constant_(self.forget_gate_bias, self.options.forget_bias)

    def unit(self) -> ops.MinLSTM:
        weights = self.forget_gate_bias, self.input_gate_bias, self.candidate_bias
        return ops.MinLSTM(weights=weights, positive=self.options.positive)
