"""minLSTM, an LSTM whose gates depend on the input only, as layers."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt import cells
from nmt.cells.min_lstm import MinLSTMOptions
from nmt.layers.base import RecurrentLayers


class MinLSTM(RecurrentLayers[Tensor]):
    """Minimal long short-term memory (Feng et al., 2024).

        f = sigmoid(x_f + b_f)      i likewise
        g = x_h + b_h
        h = f / (f + i) * h' + i / (f + i) * g

    The x [H] are products of the input, h' is the previous state; there is no other memory. With `layer_norm` the
    products of the gates are normalised together and x_h separately.

    Args (the others: `RecurrentLayers`):
        positive: replace g by g + 0.5 where g >= 0 and by sigmoid(g) elsewhere, as in the authors' log-space form.
        forget_bias: initial value of b_f.
    """

    cell = cells.MinLSTM

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
        positive: bool = False,
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
            options=MinLSTMOptions(positive=positive, forget_bias=forget_bias),
            device=device,
            dtype=dtype,
        )
