"""LSTM, long short-term memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from nmt import ops
from nmt.cells.base import MemoryState, RecurrentCell, RecurrentInit
from nmt.cells.initializers import INIT_RANGE
from nmt.ops.lstm import OutputActivation
from nmt.ops.lstm.fused import lstm_layer
from nmt.ops.unit import flat
from nmt.registry import CELLS


@dataclass(frozen=True, kw_only=True)
class LSTMOptions:
    """Options of LSTM."""

    recurrent_init: RecurrentInit = "uniform"
    """Initial values of the recurrent matrix; `uniform`: as for all other weights, see `model.initializer`."""
    forget_bias: float = 0.0
    """Initial bias of the forget gate (Jozefowicz et al., ICML 2015, recommend 1)."""
    peepholes: bool = False
    """Each gate also reads the memory through a vector: i and f read c', o reads c."""
    output_activation: OutputActivation = "tanh"
    """`tanh`: h = o * tanh(c); `identity`: h = o * c."""


@CELLS.register("lstm")
class LSTM(RecurrentCell[MemoryState]):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate of Gers et al. 2000).

        i = sigmoid(x_i + U_i h' + b_i)      f, o likewise
        g = tanh(x_g + V h' + d)
        c = i * g + f * c'
        h = o * tanh(c)

    The x [H] are products of the input; h', c' the previous state. U above V: `recurrent_weight` [4H, H]
    (i, f, o, g), b and d: `recurrent_bias` [4H]; layer norm over the first 3H and the last H.
    Input products (4H; layer norm over the first 3H and the last H): x_i, x_f, x_o, x_g.

    With peepholes (Gers and Schmidhuber, IJCNN 2000, in the form of Graves, 2013) there are three vectors [H], which
    are not normalised:

        i = sigmoid(x_i + U_i h' + w_i * c' + b_i)      f likewise
        o = sigmoid(x_o + U_o h' + w_o * c + b_o)

    w_i: `peephole_input`, w_f: `peephole_forget`, w_o: `peephole_output`.
    """

    Options = LSTMOptions
    State = MemoryState
    options: LSTMOptions
    input_parts: ClassVar[tuple[int, ...]] = (3, 1)
    recurrent_parts: ClassVar[tuple[int, ...]] = (3, 1)

    def _make_recurrent(self) -> None:
        super()._make_recurrent()
        self.peephole_input = self._peephole()
        self.peephole_forget = self._peephole()
        self.peephole_output = self._peephole()

    def _peephole(self) -> nn.Parameter | None:
        return nn.Parameter(torch.empty(self.hidden_size)) if self.options.peepholes else None

    def reset_parameters(self, init_range: float = INIT_RANGE) -> None:
        super().reset_parameters(init_range)
        with torch.no_grad():
            self.recurrent_bias[self.hidden_size : 2 * self.hidden_size].fill_(self.options.forget_bias)

    def unit(self) -> ops.LSTM:
        vectors = self.peephole_input, self.peephole_forget, self.peephole_output
        return ops.LSTM(
            weights=(*flat(self.recurrent), *(vector for vector in vectors if vector is not None)),
            normalized=self.layer_norm,
            peepholes=self.options.peepholes,
            output_activation=self.options.output_activation,
        )

    def layer(
        self, x: Tensor, state: MemoryState | None = None, mask: Tensor | None = None, *, reverse: bool = False
    ) -> tuple[Tensor, MemoryState]:
        before = None if state is None else tuple(state)
        found = lstm_layer(self.unit(), x, self.input_weight, before, mask, reverse=reverse)
        if found is None:
            return super().layer(x, state, mask, reverse=reverse)
        outputs, last = found
        return outputs, MemoryState(*last)
