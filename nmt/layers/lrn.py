"""LRN, the lightweight recurrent network, as layers."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt import cells
from nmt.cells.lrn import LRNOptions
from nmt.layers.base import RecurrentLayers


class LRN(RecurrentLayers[Tensor]):
    """Lightweight recurrent network (Zhang and Sennrich, ACL 2019).

        i = sigmoid(p + h')
        f = sigmoid(q - h')
        h = i * r + f * h'

    p, q, r [H] are products of the input, h' is the previous state. There is no recurrent matrix and no bias, so that
    all matrix products are computed at once for the whole sequence. With `layer_norm` p, q and r are normalised
    together.

    Args (the others: `RecurrentLayers`):
        tanh: the new state is the tanh of this h.
    """

    cell = cells.LRN

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
            options=LRNOptions(tanh=tanh),
            device=device,
            dtype=dtype,
        )
