"""LSTM, long short-term memory, as layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt import cells
from nmt.cells.lstm import LSTMOptions
from nmt.cells.unit import RecurrentInit
from nmt.layers.base import RecurrentLayers
from nmt.layers.from_torch import lstm_from_torch
from nmt.ops.lstm import OutputActivation


class LSTM(RecurrentLayers[tuple[Tensor, Tensor]]):
    """Long short-term memory (Hochreiter and Schmidhuber 1997; forget gate of Gers et al. 2000).

        i = sigmoid(x_i + U_i h' + b_i)      f, o likewise
        g = tanh(x_g + V h' + d)
        c = i * g + f * c'
        h = o * tanh(c)

    The x [H] are products of the input; h', c' are the previous state. These are the equations of `torch.nn.LSTM`,
    whose two biases are one here; see `from_torch`. With `layer_norm` the products of the input are normalised (x_i,
    x_f and x_o together), and so are the products of the state. States are pairs (h, c).

    Args (the others: `RecurrentLayers`):
        forget_bias: initial value of b_f.
        peepholes: i and f also read c', o reads c, each through a vector. No kernel supports it.
        output_activation: `tanh`, h = o * tanh(c), or `identity`, h = o * c. No kernel supports `identity`.
        recurrent_init: initial values of U and V: `uniform`, as for all other weights, or `orthogonal`.
    """

    cell = cells.LSTM

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        layer_norm: bool = False,
        forget_bias: float = 0.0,
        peepholes: bool = False,
        output_activation: OutputActivation = "tanh",
        recurrent_init: RecurrentInit = "uniform",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            layer_norm=layer_norm,
            options=LSTMOptions(
                forget_bias=forget_bias,
                peepholes=peepholes,
                output_activation=output_activation,
                recurrent_init=recurrent_init,
            ),
            device=device,
            dtype=dtype,
        )

    @classmethod
    def from_torch(cls, other: nn.LSTM) -> LSTM:
        """An LSTM that computes the same as `other`, with copies of its weights.

        Raises ValueError if `other` has projections (proj_size), which this LSTM does not support.
        """
        weight = next(other.parameters())
        same = cls(
            other.input_size,
            other.hidden_size,
            other.num_layers,
            batch_first=other.batch_first,
            dropout=other.dropout,
            bidirectional=other.bidirectional,
            device=weight.device,
            dtype=weight.dtype,
        )
        lstm_from_torch(same, other)
        return same
