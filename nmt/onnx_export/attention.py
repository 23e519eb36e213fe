"""Attention and rotary positions in ONNX nodes, in the layouts of the engine's programs."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from nmt.onnx_export.graph import Term, op

BASE = 10_000.0
"""Of rotary positions."""
_NEVER = -1e30
"""Score of a position that is padding, or not to be seen: its weight is 0."""


def additive(query: Term, keys: Term, values: Term, score: Term, *, mask: Term, heads: int) -> tuple[Term, Term]:
    """What queries [N, W] find by e_s = score . tanh(query + key_s) in each head, and the weights [N, heads, S].

    Keys and values are [M, S, W], `mask` [M, S, 1], M being N, or 1 for all queries; `score` [W / heads].
    """
    products = op("Tanh", query.unsqueezed(1) + keys).reshape(0, 0, heads, -1) * score
    return _mixed(_sum(products, -1), values, mask=mask, heads=heads)


def dot(query: Term, keys: Term, values: Term, *, mask: Term | None, heads: int, width: int) -> tuple[Term, Term]:
    """The same by query . key / sqrt(D), D being the width of a head; without a mask there is no padding."""
    query = query.unsqueezed(1).reshape(0, 0, heads, -1) * (1 / math.sqrt(width // heads))
    scores = _sum(query * keys.reshape(0, 0, heads, -1), -1)
    return _mixed(scores, values, mask=mask, heads=heads)


def self_attention(
    query: Term, keys: Term, values: Term, *, mask: Term, heads: int, width: int, later: Term | None = None
) -> Term:
    """The same for all words of a sentence at once: all [B, S, W], `mask` [B, S, 1]; `later` [S, S] is 1 where a key
    must not be seen."""
    query = query.reshape(0, 0, heads, -1).transposed(0, 2, 1, 3)
    keys, values = (_columns(x, heads) for x in (keys, values))  # [B, heads, D, S]
    scores = op("MatMul", query, keys) * (1 / math.sqrt(width // heads))  # [B, heads, S, S]
    scores = scores if later is None else scores + later * _NEVER
    powers = _powers(scores, _row(mask), dimension=3).transposed(0, 1, 3, 2)
    return (op("MatMul", values, powers) / _totals(powers, mask)).transposed(0, 3, 1, 2).reshape(0, 0, width)


def rotated(x: Term, positions: Term, *, heads: int, width: int, rank: int) -> Term:
    """Pairs (i, i + D/2) of each head of x [..., W] turned by position * 10000^(-2i/D).

    `positions` are floats: of x [B, S, W] [S, 1, 1], of [N, W] [1, 1].
    """
    half = width // heads // 2
    rates = np.exp(np.arange(half, dtype=np.float32) * np.float32(-math.log(BASE) / half))
    angles = positions * x.graph.stored(rates)
    cos, sin = op("Cos", angles), op("Sin", angles)
    whole = [0] * (rank - 1)
    split = x.reshape(*whole, heads, 2 * half)
    first, second = split.part(0, half), split.part(half, half)
    turned = first * cos - second * sin, first * sin + second * cos
    return op("Concat", *turned, axis=-1).reshape(*whole, width)


def placed(x: Term, positions: Term, *, width: int, slowest: int) -> Term:
    """x [..., W] plus sin(angle) in its first half and cos(angle) in its second, angle = position * 10000^(-i/slowest).

    `positions` are floats: of x [B, S, W] [S, 1], of [N, W] [N, 1].
    """
    rates = np.exp(np.arange(width // 2, dtype=np.float32) * np.float32(-math.log(BASE) / slowest))
    angles = positions * x.graph.stored(rates)
    return x + op("Concat", op("Sin", angles), op("Cos", angles), axis=-1)


def _mixed(scores: Term, values: Term, *, mask: Term | None, heads: int) -> tuple[Term, Term]:
    """The values [M, S, W] mixed by scores [N, S, heads]: [N, W], and the weights [N, heads, S].

    Sums over words are products of matrices with one column for each row. The softmax and the sums of ONNX Runtime, and
    products with rows, have other orders of summation for other numbers of rows, or where sentences are filled up.
    """
    powers = op("Softmax", scores, axis=1) if mask is None else _powers(scores, mask, dimension=1)
    powers = powers.transposed(0, 2, 1).unsqueezed(3)  # [N, heads, S, 1]
    if mask is not None:
        powers = powers / _totals(powers, mask)
    found = op("MatMul", _columns(values, heads), powers)  # [N, heads, D, 1]
    return found.reshape(0, -1), powers.reshape(0, heads, -1)


def _powers(scores: Term, mask: Term, *, dimension: int) -> Term:
    """exp(score - the largest in this dimension), 0 where the mask is false."""
    scores = op("Where", mask, scores, scores.graph.number(_NEVER))
    return op("Exp", scores - op("ReduceMax", scores, axes=[dimension], keepdims=1))


def _columns(x: Term, heads: int) -> Term:
    """[M, S, W] -> [M, heads, D, S]"""
    return x.reshape(0, 0, heads, -1).transposed(0, 2, 3, 1)


def _row(mask: Term) -> Term:
    """[M, S, 1] -> [M, 1, 1, S]"""
    return mask.unsqueezed(1).transposed(0, 1, 3, 2)


def _totals(powers: Term, mask: Term) -> Term:
    """The sums of powers [N, heads, S, Q] over words: [N, heads, 1, Q]."""
    row = op("Cast", _row(mask), to=TensorProto.FLOAT)
    # two equal rows: a product with one has another order of summation where sentences are filled up
    return op("Gather", op("MatMul", op("Concat", row, row, axis=2), powers), mask.graph.integers(0), axis=2)


def _sum(x: Term, dimension: int) -> Term:
    return op("ReduceSum", x, x.graph.integers(dimension), keepdims=0)
