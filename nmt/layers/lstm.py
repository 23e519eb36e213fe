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

        i = sigmoid(x_i + U_i h' + b_i)      f, o alike
        g = tanh(x_g + V h' + d)
        c = i * g + f * c'
        h = o * tanh(c)

    The x [H] are products of the input; h', c' are the state before. These are the equations of `torch.nn.LSTM`, whose
    two biases are one here; see `from_torch`. With `layer_norm` the products of the input are normalised, those of the
    gates together, and so are those of the state. States are pairs (h, c).

    Args (the others: `RecurrentLayers`):
        forget_bias: what b_f starts from.
        peepholes: i and f also look at c', o at c, each through a vector. No kernel knows it.
        output_activation: h = o * tanh(c), or, with `identity`, h = o * c. No kernel knows `identity`.
        recurrent_init: how U and V start: `uniform`, as all weights, or `orthogonal`.
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
        """An LSTM that computes what `other` does, with copies of its weights.

        Raises ValueError for one with projections (proj_size), which there are none of here.
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
