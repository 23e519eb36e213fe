"""Linear maps of one or several inputs, with the layer norm of the original system."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nmt.cells import as_initializer
from nmt.models.initialize import initialize
from nmt.ops.layer_norm import layer_norm
from nmt.ops.matrices.training import linear
from nmt.ops.recurrence import product_type


class LayerNorm(nn.Module):
    """scale * (x - mean) / sqrt(variance + 1e-8) + offset over the last axis, in at least fp32."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(size))
        self.offset = nn.Parameter(torch.empty(size))

    def reset_parameters(self, init_range: float) -> None:
        """Scale 1, offset 0, whatever the initializer."""
        nn.init.ones_(self.scale)
        nn.init.zeros_(self.offset)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., size]."""
        return layer_norm(x, self.scale, self.offset)


class Linear(nn.Module):
    """y = x_0 W_0 + x_1 W_1 + ... + b for inputs x_j of the widths `inputs`.

    Without layer norm the inputs are concatenated and there is one weight [out, sum of widths].
    With it each product has a weight [out, width] and a layer norm of its own, the results are
    added, and only then the bias, which is never normalised.
    """

    def __init__(self, inputs: Sequence[int], outputs: int, *, bias: bool = True, normalize: bool = False) -> None:
        super().__init__()
        widths = list(inputs) if normalize else [sum(inputs)]
        self.weights = nn.ParameterList([nn.Parameter(torch.empty(outputs, width)) for width in widths])
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.norms = nn.ModuleList([LayerNorm(outputs) for _ in widths] if normalize else [])

    def reset_parameters(self, init_range: float) -> None:
        """Weights by the initializer, zero bias, layer norm 1 and 0."""
        for weight in self.weights:
            as_initializer(init_range).matrix_(weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        for norm in self.norms:
            initialize(norm, init_range)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Map the inputs [..., width_j], which agree in all but the last axis, to [..., out]."""
        if not self.norms:
            x = inputs[0] if len(inputs) == 1 else torch.cat([x.to(product_type(x)) for x in inputs], dim=-1)
            return linear(x, self.weights[0], self.bias)
        products = [norm(linear(x, weight)) for norm, x, weight in zip(self.norms, inputs, self.weights, strict=True)]
        total = sum(products[1:], start=products[0])
        return total if self.bias is None else total + self.bias
