"""The memory times the input matrix of the higher cell, before the loop, so that no product with it is in the loop.

Attention then sums rows of m W' + b instead of rows of m: as its weights add up to one, that is what the cell reads.
Contexts, and the gradients of what they are made of, are products over all time steps once the loop is over.
Only where attention has one head and nothing, such as dropout, lies between a context and the matrix.

Letters as in `nmt.ops.conditional.plan`; N is the width k'H of the input of the higher cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

MOVED_MEANWHILE: Final = 8 * 2**20
"""Bytes that a large GPU reads in the about 2 us that one more small product takes in a chain of them."""


def worth_it(values: Tensor, matrix: Tensor) -> bool:
    """Whether to multiply values [B, G, S, D] by matrix [N, M] before the loop: if attention then reads no more bytes
    at each step than the product would, and a GPU could while it waits for it.

    By reasoning; not yet measured on a GPU.
    """
    sentences, heads, source, width = values.shape
    more = sentences * source * (len(matrix) - width) * values.element_size()
    return heads == 1 and more <= matrix.numel() * matrix.element_size() + MOVED_MEANWHILE


def multiplied(values: Tensor, context: Sequence[Tensor]) -> Tensor:
    """[B, 1, S, N] from values [B, 1, S, M] and the parameters of the product: matrix, bias and, with layer norm, which
    comes before the bias, more."""
    matrix, bias = context[:2]
    return F.linear(values, matrix, bias if len(context) == 2 else None)


def write_contexts(weights: Tensor, values: Tensor, *, out: Tensor) -> None:
    """Contexts [T, B, M] from attention weights [T, B, 1, S] and values [B, 1, S, M]."""
    out.copy_(torch.bmm(weights[:, :, 0].transpose(0, 1).to(values.dtype), values[:, 0]).transpose(0, 1))


def weights_gradient(d_contexts: Tensor, values: Tensor) -> Tensor:
    """What attention weights [T, B, 1, S], fp32, get from the gradients of contexts [T, B, M] that others have read."""
    products = torch.bmm(d_contexts.transpose(0, 1), values[:, 0].transpose(1, 2))  # [B, T, S]
    return products.transpose(0, 1).unsqueeze(2).to(torch.float32, memory_format=torch.contiguous_format, copy=True)


def write_contexts_gradient(d_contexts: Tensor, d_product: Tensor, matrix: Tensor, *, out: Tensor) -> None:
    """The whole gradients of contexts [T, B, M], from that part and the gradients of the products [T, B, N]."""
    torch.addmm(d_contexts.flatten(0, 1), d_product.flatten(0, 1), matrix, out=out.flatten(0, 1))
