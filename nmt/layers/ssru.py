"""SSRU, the simpler simple recurrent unit, as layers."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt import cells
from nmt.cells.ssru import SSRUOptions
from nmt.layers.base import RecurrentLayers


class SSRU(RecurrentLayers[tuple[Tensor, Tensor]]):
    """Simpler simple recurrent unit (Kim et al., WNGT 2019), as in Marian.

        f = sigmoid(x_f + b_f)
        c = f * c' + (1 - f) * x_c
        h = relu(c)

    The x [H] are products of the input, c' is the previous memory. The gate depends on the input only. With
    `layer_norm` each product is normalised separately. States are pairs (h, c), as for an LSTM; of the initial states
    only c is read.

    Args (the others: `RecurrentLayers`):
        forget_bias: initial value of b_f.
    """

    cell = cells.SSRU

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
            options=SSRUOptions(forget_bias=forget_bias),
            device=device,
            dtype=dtype,
        )
