"""The C kernel of scaled dot-product attention against its equation."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nmt.ops.attention import dot_attention
from nmt.ops.dispatch import selected


def parts(beam: int, heads: int, positions: int, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(beam + positions)
    query = torch.randn(3, beam, heads * width, generator=generator)
    keys, values = torch.randn(2, 3, heads, positions, width, generator=generator)
    lengths = torch.tensor([positions, max(1, positions // 2), 1])
    penalty = torch.where(torch.arange(positions) < lengths[:, None], 0.0, -1e8)[:, None, None]
    return query, keys, values, penalty


def close(ours: Tensor, wanted: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(ours.float(), wanted.float(), rtol=tolerance, atol=tolerance)


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 4, 7, 16), (5, 2, 33, 9), (3, 3, 18, 65)])
def test_kernel_against_equation(shape: tuple[int, int, int, int], dtype: torch.dtype, tolerance: float) -> None:
    query, keys, values, penalty = parts(*shape)
    query, keys, values = (x.to(dtype) for x in (query, keys, values))
    found, weights = dot_attention(query, keys, values, penalty=penalty)
    with selected("reference"):
        wanted, shares = dot_attention(query, keys, values, penalty=penalty)
    assert (found.dtype, weights.dtype) == (dtype, torch.float32)
    close(found, wanted, tolerance)
    close(weights, shares, tolerance)
    assert (weights.masked_select((penalty < -1).expand_as(weights)) == 0).all()


@torch.no_grad()
def test_rows_of_a_wider_tensor_and_padding_alone() -> None:
    query, keys, values, penalty = parts(2, 2, 5, 4)
    wide = torch.cat([query, query], -1)[..., 8:]
    assert torch.equal(
        dot_attention(wide, keys, values, penalty=penalty)[0], dot_attention(query, keys, values, penalty=penalty)[0]
    )
    weights = dot_attention(query, keys, values, penalty=penalty.fill_(-1e8))[1]
    close(weights.sum(-1), torch.ones(3, 2, 2), 1e-5)


@torch.no_grad()
def test_a_nan_is_not_hidden() -> None:
    query, keys, values, penalty = parts(1, 1, 4, 4)
    keys[0, 0, 2, 1] = math.nan
    found, weights = dot_attention(query, keys, values, penalty=penalty)
    assert found[0].isnan().all() and weights[0].isnan().all() and found[1:].isfinite().all()


def test_with_a_gradient_it_is_the_equation() -> None:
    query, keys, values, penalty = parts(2, 2, 5, 4)
    query.requires_grad_()
    dot_attention(query, keys, values, penalty=penalty)[0].sum().backward()
    assert query.grad is not None and query.grad.abs().sum() > 0
