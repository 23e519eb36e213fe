"""minGRU, a GRU whose gate depends on the input only, as layers."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt import cells
from nmt.cells.min_gru import MinGRUOptions
from nmt.layers.base import RecurrentLayers


class MinGRU(RecurrentLayers[Tensor]):
    """Minimal gated recurrent unit (Feng et al., 2024).

        z = sigmoid(x_z + b_z)
        g = x_h + b_h
        h = (1 - z) * h' + z * g

    The x [H] are products of the input, h' is the previous state. With `layer_norm` each product is normalised
    separately.

    Args (the others: `RecurrentLayers`):
        positive: replace g by g + 0.5 where g >= 0 and by sigmoid(g) elsewhere, as in the authors' log-space form.
        forget_bias: b_z starts at minus this value.
    """

    cell = cells.MinGRU

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
            options=MinGRUOptions(positive=positive, forget_bias=forget_bias),
            device=device,
            dtype=dtype,
        )
