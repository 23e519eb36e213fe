"""GRU, the gated recurrent unit, as layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt import cells
from nmt.cells.gru import GRUOptions
from nmt.cells.unit import RecurrentInit
from nmt.layers.base import RecurrentLayers
from nmt.layers.from_torch import gru_from_torch
from nmt.ops.gru import Reset


class GRU(RecurrentLayers[Tensor]):
    """Gated recurrent unit (Cho et al., EMNLP 2014), in which z keeps the old state.

        z = sigmoid(x_z + U_z h' + b_z)
        r = sigmoid(x_r + U_r h' + b_r)
        g = tanh(x_g + V (r * h') + d)
        h = z * h' + (1 - z) * g

    The x [H] are products of the input, h' is the previous state. With `layer_norm` the products of the input are
    normalised (x_z and x_r together), and so are the products of the state.

    Args (the others: `RecurrentLayers`):
        reset: where r acts: `before` the product, as above, or `after` it, g = tanh(x_g + r * (V h' + d)), as in
            `torch.nn.GRU`, see `from_torch`. No kernel supports `after`: PyTorch runs it step by step.
        recurrent_init: initial values of U and V: `uniform`, as for all other weights, or `orthogonal`.
    """

    cell = cells.GRU

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
        reset: Reset = "before",
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
            options=GRUOptions(reset=reset, recurrent_init=recurrent_init),
            device=device,
            dtype=dtype,
        )

    @classmethod
    def from_torch(cls, other: nn.GRU) -> GRU:
        """A GRU with `reset="after"` that computes the same as `other`, with copies of its weights.

        Raises ValueError if b_in of `other`, the bias of the input product in g, is not 0: this GRU has no such bias.
        """
        weight = next(other.parameters())
        same = cls(
            other.input_size,
            other.hidden_size,
            other.num_layers,
            batch_first=other.batch_first,
            dropout=other.dropout,
            bidirectional=other.bidirectional,
            reset="after",
            device=weight.device,
            dtype=weight.dtype,
        )
        gru_from_torch(same, other)
        return same
