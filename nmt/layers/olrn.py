"""oLRN, the lightweight recurrent network with an output gate, as layers."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt import cells
from nmt.cells.olrn import OLRNOptions
from nmt.layers.base import RecurrentLayers


class OLRN(RecurrentLayers[Tensor]):
    """Lightweight recurrent network with an output gate (Zhang and Sennrich, ACL 2019).

        i = sigmoid(p + h')
        f = sigmoid(q - h')
        c = i * r + f * h'
        h = sigmoid(s - c) * c

    p, q, r, s [H] are products of the input, h' is the previous state; nothing else is carried. There is no recurrent
    matrix and no bias. With `layer_norm` p, q, r and s are normalised together.

    Args (the others: `RecurrentLayers`):
        tanh: c is the tanh of its equation.
    """

    cell = cells.OLRN

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
        tanh: bool = False,
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
            options=OLRNOptions(tanh=tanh),
            device=device,
            dtype=dtype,
        )
