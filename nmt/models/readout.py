"""What stands between encoder and decoder, and between decoder and softmax."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt.models.dropout import Dropout
from nmt.models.linear import Linear


class InitialStates(nn.Module):
    """The packed initial state of each decoder layer: a linear map of what the encoder read last."""

    def __init__(self, input_size: int, state_sizes: list[int], *, tanh: bool, layer_norm: bool) -> None:
        super().__init__()
        self.maps = nn.ModuleList(Linear([input_size], size, normalize=layer_norm) for size in state_sizes)
        self.tanh = tanh

    def forward(self, last: Tensor) -> list[Tensor]:
        """last [B, width] -> for each decoder layer [B, P]."""
        packed = [linear(last) for linear in self.maps]
        return [torch.tanh(state) for state in packed] if self.tanh else packed


class Readout(nn.Module):
    """Features [..., E] that are compared with the softmax table."""

    def forward(self, *pieces: Tensor) -> Tensor:
        """From what the decoder put out; without a layer of its own the first piece [..., E]."""
        return pieces[0]


class TanhReadout(Readout):
    """dropout(tanh(W pieces + b)).

    `joined`: the pieces are concatenated before the linear map, so that with layer norm too there is
    one weight and one layer norm; otherwise each piece then has its own.
    """

    def __init__(self, inputs: list[int], size: int, *, joined: bool, layer_norm: bool, dropout: float) -> None:
        super().__init__()
        self.joined = joined
        self.linear = Linear([sum(inputs)] if joined else inputs, size, normalize=layer_norm)
        self.dropout = Dropout(dropout)

    def forward(self, *pieces: Tensor) -> Tensor:
        if self.joined:
            pieces = (torch.cat(pieces, -1),)
        return self.dropout(torch.tanh(self.linear(*pieces)))
