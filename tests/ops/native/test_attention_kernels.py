"""The attention kernels alone: context, weights and all gradients against the equation in float64."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from nmt.kernel_check.cases import TOLERANCES
from nmt.ops.attention import AttentionKernel, additive_attention, attend_native, powers_of
from tests.ops.units import needs_native

pytestmark = needs_native

SENTENCES = 3
PENALTY = -1e8
CLOSE = {dtype: TOLERANCES[dtype] for dtype in (torch.float32, torch.bfloat16)}
"""The largest norm of an error, as a share of the norm of what is right."""


class Problem(NamedTuple):
    """What attention takes: the keys doubled, the queries not."""

    query: Tensor
    """[B, Q, M]"""
    keys: Tensor
    """[B, G, S, D]"""
    values: Tensor
    weight: Tensor
    """[D]"""
    penalty: Tensor
    """[B, 1, 1, S]"""


def problem(*, queries: int, heads: int, positions: int, width: int, dtype: torch.dtype = torch.float32) -> Problem:
    """Random values; of the positions after the first, the second sentence has every other one alone."""
    generator = torch.Generator().manual_seed(positions * width)
    sizes = [(SENTENCES, queries, heads * width), *[(SENTENCES, heads, positions, width)] * 2, (width,)]
    query, keys, values, weight = (torch.randn(size, generator=generator) for size in sizes)
    penalty = torch.zeros(SENTENCES, 1, 1, positions)
    penalty[1, ..., 1::2] = PENALTY
    return Problem(query.to(dtype), keys.to(dtype), values.to(dtype), weight, penalty)


def exact(given: Problem) -> tuple[Tensor, Tensor]:
    """Context and weights by the reference."""
    query, keys, values, weight, penalty = given
    doubled = 2 * query.unflatten(2, (keys.size(1), -1)).transpose(1, 2)
    bias = torch.zeros(1, dtype=weight.dtype)
    return additive_attention(doubled, keys, values=values, penalty=penalty, weight=weight, bias=bias)


def attend(given: Problem) -> tuple[Tensor, Tensor]:
    """The same by the kernel."""
    query, keys, values, weight, penalty = given
    return attend_native(query, keys, powers=powers_of(keys), values=values, penalty=penalty, weight=weight)


def check(found: Tensor, wanted: Tensor, *, dtype: torch.dtype) -> None:
    assert found.shape == wanted.shape
    error = (found.double() - wanted).norm()
    assert error <= CLOSE[dtype] * wanted.norm().clamp_min(1e-3)  # false for NaN, too


SIZES = [(1, 1, 1, 1), (1, 2, 5, 7), (4, 1, 9, 33), (3, 3, 2, 16)]  # queries, heads, positions, width


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("queries", "heads", "positions", "width"), SIZES)
def test_context_and_weights(queries: int, heads: int, positions: int, width: int, dtype: torch.dtype) -> None:
    given = problem(queries=queries, heads=heads, positions=positions, width=width, dtype=dtype)
    context, weights = attend(given)
    assert context.dtype == dtype and weights.dtype == torch.float32
    right_context, right_weights = exact(Problem(*(tensor.double() for tensor in given)))
    check(context, right_context, dtype=dtype)
    check(weights, right_weights, dtype=torch.float32)
    assert not weights[1, ..., 1::2].any()
    strange = Problem(
        query=given.query.transpose(0, 2).contiguous().transpose(0, 2),
        keys=given.keys.transpose(1, 3).contiguous().transpose(1, 3),
        values=torch.cat([given.values, given.values], -1)[..., :width],
        weight=torch.stack([given.weight, given.weight], -1)[..., 0],
        penalty=given.penalty.transpose(0, 3).contiguous().transpose(0, 3),
    )
    assert all(map(torch.equal, attend(strange), (context, weights)))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("queries", "heads", "positions", "width"), SIZES)
def test_gradients(queries: int, heads: int, positions: int, width: int, dtype: torch.dtype) -> None:
    """The queries of a sentence are the steps of a loop, one after the other."""
    given = problem(queries=queries, heads=heads, positions=positions, width=width, dtype=dtype)
    leaves = [tensor.double().requires_grad_() for tensor in given[:4]]
    right, _ = exact(Problem(*leaves, given.penalty.double()))
    upstream = torch.randn(right.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    wanted = torch.autograd.grad(right, leaves, upstream.double())

    kernel = AttentionKernel(
        given.keys, given.values, powers=powers_of(given.keys), penalty=given.penalty[:, 0, 0], weight=given.weight
    )
    rows, d_contexts = (x.transpose(0, 1).contiguous() for x in (given.query, upstream))  # [T, B, M]
    weights = torch.empty(queries, SENTENCES, heads, positions)
    d_scores, contexts, d_queries = torch.empty_like(weights), torch.empty_like(rows), torch.empty_like(rows)
    for t in range(queries):
        kernel.forward(rows[t], weights=weights[t], context=contexts[t])
        kernel.query_gradient(
            rows[t], weights=weights[t], d_context=d_contexts[t], d_scores=d_scores[t], d_query=d_queries[t]
        )
    found = kernel.memory_gradients(rows, weights=weights, d_scores=d_scores, d_contexts=d_contexts)
    for ours, one in zip((d_queries.transpose(0, 1), *found), wanted, strict=True):
        check(ours, one, dtype=dtype)
    assert not found[0][1, :, 1::2].any() and not found[1][1, :, 1::2].any()


def test_no_step_has_no_gradient() -> None:
    given = problem(queries=0, heads=2, positions=3, width=5)
    kernel = AttentionKernel(
        given.keys, given.values, powers=powers_of(given.keys), penalty=given.penalty[:, 0, 0], weight=given.weight
    )
    rows, weights = torch.empty(0, SENTENCES, 10), torch.empty(0, SENTENCES, 2, 3)
    found = kernel.memory_gradients(rows, weights=weights, d_scores=weights, d_contexts=rows)
    assert not any(gradient.any() for gradient in found)  # false for NaN, too


def test_a_sentence_of_padding_alone_is_treated_as_the_reference_treats_it() -> None:
    given = problem(queries=2, heads=1, positions=4, width=6)
    given.penalty[2] = PENALTY
    for ours, right in zip(attend(given), exact(given), strict=True):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, right)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_comes_through(bad: float) -> None:
    """In the query and the sentence it stands in, and in no other; at padding nobody reads it."""
    clean = problem(queries=2, heads=1, positions=4, width=6)
    context, weights = attend(clean)
    for name, place, touched in (("query", (0, 1), (0, 1)), ("keys", (0, 0, 2), (0,)), ("values", (0, 0, 2), (0,))):
        given = clean._replace(**{name: getattr(clean, name).clone()})
        getattr(given, name)[place] = bad
        found, shares = attend(given)
        right, _ = exact(given)
        assert not (found.isfinite() & ~right.isfinite()).any(), name
        rest = torch.ones(SENTENCES, 2, dtype=torch.bool)
        rest[touched] = False
        assert torch.equal(found[rest], context[rest]) and torch.equal(shares[:, 0][rest], weights[:, 0][rest]), name
    padded = clean._replace(keys=clean.keys.clone(), values=clean.values.clone())
    padded.keys[1, :, 1] = padded.values[1, :, 1] = bad
    assert all(map(torch.equal, attend(padded), (context, weights)))


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_scores_of_any_size(size: float) -> None:
    given = problem(queries=1, heads=1, positions=4, width=6)
    given = given._replace(weight=given.weight * size, penalty=torch.zeros_like(given.penalty))
    for ours, right in zip(attend(given), exact(Problem(*(tensor.double() for tensor in given))), strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=0, atol=1e-3)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("dtype", CLOSE)
def test_the_number_of_threads_changes_no_bit(dtype: torch.dtype) -> None:
    given, results = problem(queries=5, heads=2, positions=17, width=33, dtype=dtype), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(attend(given))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("size", [5, 40, 60, 100, 1000])
def test_large_keys_and_queries_that_cancel(size: float, dtype: torch.dtype) -> None:
    """Powers of such keys end in 0 or infinity, and queries beyond a limit take another path; sums are small."""
    given = problem(queries=2, heads=1, positions=4, width=64, dtype=dtype)
    query = (given.query.sign() * size).to(dtype)
    keys = (-2 * query[:, :1, None] + given.keys.float()).to(dtype)
    given = given._replace(query=query, keys=keys)
    for ours, right in zip(attend(given), exact(Problem(*(tensor.double() for tensor in given))), strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=0, atol=1e-5 if ours.dtype == torch.float32 else 2e-2)
