"""minGRU: a step and its gradient in Triton, as `nmt.ops.scan.triton` calls them."""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import sigmoid

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803 - inside kernels constants are in capitals


@triton.jit
def positive_part(x):
    """As `nmt.ops.min_gru.positive_part`."""
    return tl.where(x >= 0.0, x + 0.5, sigmoid(x))


@triton.jit
def positive_slope(x):
    """Its derivative."""
    low = sigmoid(x)
    return tl.where(x >= 0.0, 1.0, low * (1.0 - low))


@triton.jit
def step(x, state, vectors, OPTIONS: tl.constexpr):
    g = x[1] + vectors[1]
    if OPTIONS == 1:
        g = positive_part(g)
    return (state[0] + sigmoid(x[0] + vectors[0]) * (g - state[0]),)


@triton.jit
def gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    z = sigmoid(x[0] + vectors[0])
    g = x[1] + vectors[1]
    dg = d[0] * z
    if OPTIONS == 1:
        dg = dg * positive_slope(g)
        g = positive_part(g)
    dz = d[0] * (g - state[0]) * z * (1.0 - z)
    return (dz, dg), (d[0] * (1.0 - z),), (dz, dg)
