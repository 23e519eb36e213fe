"""The kernels of additive attention against its reference: values, all gradients, and the parts that a loop calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.errors import say_once
from nmt.ops.attention import attention_reference
from tests.ops.triton.comparison import assert_equal, make_mask, randn

attention = pytest.importorskip("nmt.ops.attention.triton", reason="Triton is not installed")

BATCH = 2


def inputs(
    device: torch.device, *, heads: int = 1, queries: int = 1, source: int = 5, width: int = 6, dtype: Any = None
) -> list[Tensor]:
    """query, keys, values and weight."""
    dtype = dtype or torch.float32
    shapes = ((BATCH, heads, queries, width), (BATCH, heads, source, width), (BATCH, heads, source, width))
    tensors = [randn(*shape, device=device, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
    return [*tensors, randn(width, device=device, seed=3)]


def bound(function: Callable[..., Any], mask: Tensor | None) -> Callable[..., Any]:
    def run(query: Tensor, keys: Tensor, values: Tensor, weight: Tensor) -> Any:
        penalty = weight.new_zeros(BATCH, 1, 1, keys.size(2))
        if mask is not None:
            penalty.masked_fill_(~mask[:, None, None], -1e8)
        bias = weight.new_ones(1)
        return function(query, keys, values=values, penalty=penalty, weight=weight, bias=bias)

    return run


def check(tensors: list[Tensor], mask: Tensor | None, **options: Any) -> None:
    assert_equal(bound(attention.attention_triton, mask), bound(attention_reference, mask), tensors, **options)


@pytest.mark.parametrize(
    ("heads", "queries", "source", "width"),
    [(1, 1, 5, 6), (2, 3, 17, 5), (3, 1, 1, 8), (1, 4, 33, 40)],
)
@pytest.mark.parametrize("mask", ["none", "padding", "holes"])
def test_values_and_all_gradients(
    heads: int, queries: int, source: int, width: int, mask: str, device: torch.device
) -> None:
    live = make_mask(mask, BATCH, source, device) if source > 3 else None
    if live is not None:
        live[0, -1] = True
    check(inputs(device, heads=heads, queries=queries, source=source, width=width), live)


def test_a_row_wider_and_longer_than_a_tile(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "TILE", 16 * 32)
    tensors = inputs(device, source=20, width=21)
    assert attention.block_rule(20, 21, 21)["BLOCK_W"] < 21
    check(tensors, make_mask("padding", BATCH, 20, device))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_memory(dtype: torch.dtype, device: torch.device) -> None:
    tensors = inputs(device, heads=2, queries=2, source=9, width=8, dtype=dtype)
    context, weights = bound(attention.attention_triton, None)(*tensors)
    assert (context.dtype, weights.dtype) == (dtype, torch.float32)
    check(tensors, make_mask("padding", BATCH, 9, device), storage=dtype)


def test_beams_read_a_memory_of_any_strides_where_it_lies(device: torch.device) -> None:
    query, keys, values, weight = inputs(device, heads=2, queries=3, source=4, width=8)
    apart = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (query, keys, values)]
    assert not apart[1].is_contiguous()
    assert all(attention.readable_rows(x) is x for x in apart)
    check([*apart, weight], None)


def test_values_of_another_width_than_the_keys(device: torch.device) -> None:
    query, keys, _, weight = inputs(device, heads=2, queries=2)
    check([query, keys, randn(BATCH, 2, 5, 11, device=device, seed=9), weight], None)


@pytest.mark.parametrize("beams", [1, 3])
def test_steps_of_a_loop_write_what_autograd_returns(beams: int, device: torch.device) -> None:
    query, keys, values, weight = inputs(device, heads=2, queries=beams, source=7, width=6)
    wanted = bound(attention.attention_triton, None)(2 * query, keys, values, weight)
    loop = attention.AttentionKernel(keys, values, penalty=weight.new_zeros(BATCH, 7), weight=weight)
    rows = query.transpose(1, 2).reshape(BATCH * beams, 12)
    context, weights = torch.empty_like(rows), rows.new_empty(BATCH * beams, 2, 7)
    loop.forward(rows, weights=weights, context=context)
    assert torch.equal(context.view(BATCH, beams, 12), wanted[0])
    assert torch.equal(weights.view(BATCH, beams, 2, 7).transpose(1, 2), wanted[1])


def test_steps_of_a_loop_with_the_memory_gradients_after_it(device: torch.device) -> None:
    length, heads, source, width = 3, 2, 7, 6
    leaves = inputs(device, heads=heads, queries=length, source=source, width=width)
    query, keys, values, weight = leaves
    d_context = randn(BATCH, length, heads * width, device=device, seed=5)
    exact = [leaf.double().requires_grad_() for leaf in leaves]
    context, _ = bound(attention_reference, None)(2 * exact[0], *exact[1:])
    wanted = torch.autograd.grad(context, exact, d_context.double())

    loop = attention.AttentionKernel(keys, values, penalty=weight.new_zeros(BATCH, source), weight=weight)
    rows = query.permute(2, 0, 1, 3).reshape(length, BATCH, heads * width)
    contexts, d_queries = torch.empty_like(rows), torch.empty_like(rows)
    weights = rows.new_empty(length, BATCH, heads, source)
    d_scores, d_contexts = torch.empty_like(weights), d_context.transpose(0, 1)
    for t in range(length):
        loop.forward(rows[t], weights=weights[t], context=contexts[t])
        given = {"weights": weights[t], "d_context": d_contexts[t]}
        loop.query_gradient(rows[t], **given, d_scores=d_scores[t], d_query=d_queries[t])
    last = loop.memory_gradients(rows, weights=weights, d_scores=d_scores, d_contexts=d_contexts)
    d_query = d_queries.view(length, BATCH, heads, width).permute(1, 2, 0, 3)
    for ours, right in zip((d_query, *last), wanted, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-5)


def test_a_source_too_long_is_left_to_the_reference_and_that_is_said_once(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attention, "MOST_SOURCE", 4)
    say_once.cache_clear()
    tensors = inputs(device)
    with caplog.at_level(logging.WARNING):
        ours = [bound(attention.attention_triton, None)(*tensors) for _ in range(2)][-1]
    torch.testing.assert_close(ours, bound(attention_reference, None)(*tensors))
    assert [record.getMessage() for record in caplog.records] == [
        "attention: 5 source positions are more than 4, slower PyTorch code runs."
    ]


def test_a_sentence_of_padding_alone_gets_even_weights(device: torch.device) -> None:
    live = torch.zeros(BATCH, 5, dtype=torch.bool, device=device)
    context, weights = bound(attention.attention_triton, live)(*inputs(device))
    torch.testing.assert_close(weights, torch.full_like(weights, 0.2))
    torch.testing.assert_close(context, inputs(device)[2].mean(2))


def test_nothing_to_attend_to_or_nobody_who_does(device: torch.device) -> None:
    query, keys, values, weight = inputs(device)
    context, weights = bound(attention.attention_triton, None)(query[:, :, :0], keys, values, weight)
    assert (context.shape, weights.shape) == ((BATCH, 0, 6), (BATCH, 1, 0, 5))
