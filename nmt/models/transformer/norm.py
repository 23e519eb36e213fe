"""What normalises the input of each part of a block, and the feed-forward part."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.models.dropout import Dropout
from nmt.models.linear import Linear
from nmt.models.transformer.options import Activation, Norm

EPSILON = 1e-6


class BlockNorm(nn.Module):
    """Layer norm (Ba et al., 2016), or RMS norm: scale * x / sqrt(mean(x^2) + 1e-6) (Zhang and Sennrich, NeurIPS 2019).

    Over the last axis, in at least fp32. Scales start from 1, whatever `model.layer_norm_scale` is.
    """

    def __init__(self, size: int, kind: Norm) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.offset = nn.Parameter(torch.zeros(size)) if kind == "layer" else None

    def reset_parameters(self, init_range: float) -> None:
        """Scale 1, offset 0, whatever the initializer."""
        nn.init.ones_(self.scale)
        if self.offset is not None:
            nn.init.zeros_(self.offset)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., size]."""
        x = x.to(torch.promote_types(self.scale.dtype, torch.float32))
        if self.offset is not None:
            return F.layer_norm(x, self.scale.shape, self.scale, self.offset, EPSILON)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * self.scale


class FeedForward(nn.Module):
    """x + dropout(W_2 dropout(f(W_1 norm(x) + b_1)) + b_2).

    f is relu, or with `gated` silu(a) * b of the two halves of a product twice as wide (SwiGLU; Shazeer, 2020).
    """

    def __init__(
        self, size: int, width: int, *, activation: Activation, norm: Norm, dropout: float, residual_dropout: float
    ) -> None:
        super().__init__()
        self.norm = BlockNorm(size, norm)
        self.gated = activation == "gated"
        self.up = Linear([size], width * (2 if self.gated else 1))
        self.down = Linear([width], size)
        self.dropout = Dropout(dropout)
        self.residual_dropout = Dropout(residual_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] -> the same shape."""
        inner = self.up(self.norm(x))
        if self.gated:
            gate, inner = inner.chunk(2, -1)
            inner = F.silu(gate) * inner
        else:
            inner = F.relu(inner)
        return x + self.residual_dropout(self.down(self.dropout(inner)))
