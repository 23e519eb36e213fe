"""SRU, the simple recurrent unit, as layers."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt import cells
from nmt.cells.base import NoOptions
from nmt.layers.base import RecurrentLayers


class SRU(RecurrentLayers[tuple[Tensor, Tensor]]):
    """Simple recurrent unit (Lei et al., EMNLP 2018), without bias, tanh and scaling.

        f = sigmoid(x_f + v_f * c')
        c = f * c' + (1 - f) * x_c
        r = sigmoid(x_r + v_r * c')
        h = r * c + (1 - r) * x_h

    The x [H] are products of the input, c' is the previous memory; v_f, v_r [H]. With `layer_norm` the products are
    normalised together. States are pairs (h, c), as for an LSTM; of the initial states only c is read.
    """

    cell = cells.SRU

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
            options=NoOptions(),
            device=device,
            dtype=dtype,
        )
