"""minLSTM: a step and its gradient in Triton, as `nmt.ops.scan.triton` calls them."""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.min_gru.triton import positive_part, positive_slope
from nmt.ops.triton_tools import LOG2_E, reciprocal

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803 - inside kernels constants are in capitals


@triton.jit
def near(x):
    """e^-|x|"""
    return tl.exp2(tl.abs(x) * -LOG2_E)


@triton.jit
def rest(x):
    """1 - sigmoid(x)"""
    return tl.where(x < 0.0, 1.0, near(x)) * reciprocal(1.0 + near(x))


@triton.jit
def forget_share(f, i):
    """sigmoid(f) / (sigmoid(f) + sigmoid(i)), though both be too small for a float; see native.c."""
    far = tl.exp2((tl.where(f < 0.0, -f, 0.0) - tl.where(i < 0.0, -i, 0.0)) * LOG2_E)
    return reciprocal(1.0 + far * (1.0 + near(f)) * reciprocal(1.0 + near(i)))


@triton.jit
def step(x, state, vectors, OPTIONS: tl.constexpr):
    g = x[2] + vectors[2]
    if OPTIONS == 1:
        g = positive_part(g)
    return (g + forget_share(x[0] + vectors[0], x[1] + vectors[1]) * (state[0] - g),)


@triton.jit
def gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    f = x[0] + vectors[0]
    i = x[1] + vectors[1]
    g = x[2] + vectors[2]
    share = forget_share(f, i)
    dg = d[0] * (1.0 - share)
    if OPTIONS == 1:
        dg = dg * positive_slope(g)
        g = positive_part(g)
    gate = d[0] * (state[0] - g) * share * (1.0 - share)
    df = gate * rest(f)
    di = -gate * rest(i)
    return (df, di, dg), (d[0] * share,), (df, di, dg)
