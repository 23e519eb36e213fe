"""ATR, the addition-subtraction twin-gated recurrent network, as layers."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt import cells
from nmt.cells.atr import ATROptions
from nmt.cells.unit import RecurrentInit
from nmt.layers.base import RecurrentLayers
from nmt.ops.atr import Activation, Gates


class ATR(RecurrentLayers[Tensor]):
    """Addition-subtraction twin-gated recurrent network (Zhang et al., EMNLP 2018).

        q = U h' + b
        i = sigmoid(p + q)
        f = sigmoid(p - q)
        h = i * p + f * h'

    p [H] is the product of the input, h' the previous state. With `layer_norm` p and U h' are normalised.

    Args (the others: `RecurrentLayers`):
        activation: where a tanh is applied: `none`; `output`, the output is tanh(h) and h is carried, so that the last
            state differs from the last output; `state`, h = tanh(i * p + f * h'); `candidate`,
            h = i * tanh(p) + f * h'.
        gates: `twin`, as above; `coupled`, the same f, and i = 1 - f; `coupled_input`, the same i, and f = 1 - i.
        recurrent_init: initial values of U: `uniform`, as for all other weights, or `orthogonal`.
    """

    cell = cells.ATR

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
        activation: Activation = "none",
        gates: Gates = "twin",
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
            options=ATROptions(activation=activation, gates=gates, recurrent_init=recurrent_init),
            device=device,
            dtype=dtype,
        )
