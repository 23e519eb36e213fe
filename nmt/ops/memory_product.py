"""Multiply the memory by the input matrix of the higher cell before the loop, so that the loop has no such product.

Attention then sums rows of m W' + b instead of rows of m: since its weights add up to one, the sum is the input of the
cell. Contexts, and the gradients that depend on them, are computed after the loop as products over all time steps.
This is possible only if attention has one head and nothing, such as dropout, is between a context and the matrix.

Letters as in `nmt.ops.loop`; N is the width k'H of the input of the higher cell.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.ops.unit import Projection

MOVED_MEANWHILE: Final = 8 * 2**20
"""Bytes that a large GPU reads in about 2 us, the time of one more small product in a chain of products."""


def multiplied(values: Tensor, context: Projection) -> Tensor | None:
    """[B, 1, S, N] from values [B, 1, S, M] and the product, with its bias unless layer norm comes before the bias.

    None unless this saves time: the additional bytes that attention reads in each step must not exceed the bytes of
    the matrix plus those that a GPU could read during the product. By reasoning; not yet measured on a GPU.
    """
    sentences, heads, source, width = values.shape
    more = sentences * source * (len(context.weight) - width) * values.element_size()
    if heads > 1 or more > context.weight.numel() * values.element_size() + MOVED_MEANWHILE:
        return None
    bias = None if context.bias is None or context.scale is not None else context.bias.to(values.dtype)
    return F.linear(values, context.weight.to(values.dtype), bias)


def write_contexts(weights: Tensor, values: Tensor, *, out: Tensor) -> None:
    """Contexts [T, B, M] from attention weights [T, B, 1, S] and values [B, 1, S, M]."""
    out.copy_(torch.bmm(weights[:, :, 0].transpose(0, 1).to(values.dtype), values[:, 0]).transpose(0, 1))


def weights_gradient(d_contexts: Tensor, values: Tensor) -> Tensor:
    """The gradient of attention weights [T, B, 1, S], fp32, from the outer gradients of contexts [T, B, M]."""
    products = torch.bmm(d_contexts.transpose(0, 1), values[:, 0].transpose(1, 2))  # [B, T, S]
    return products.transpose(0, 1).unsqueeze(2).float().contiguous()
