"""SRU: a step and its gradient in Triton, as `nmt.ops.scan.triton` calls them."""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import sigmoid

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803 - inside kernels constants are in capitals


@triton.jit
def step(x, state, vectors, OPTIONS: tl.constexpr):
    x_r, x_f, x_c, x_h = x
    v_f, v_r = vectors
    c = state[1]
    new = x_c + sigmoid(x_f + v_f * c) * (c - x_c)
    return x_h + sigmoid(x_r + v_r * c) * (new - x_h), new


@triton.jit
def gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    x_r, x_f, x_c, x_h = x
    v_f, v_r = vectors
    c = state[1]
    f = sigmoid(x_f + v_f * c)
    r = sigmoid(x_r + v_r * c)
    new = x_c + f * (c - x_c)
    g = d[1] + d[0] * r
    dr = d[0] * (new - x_h) * r * (1.0 - r)
    df = g * (c - x_c) * f * (1.0 - f)
    dx = dr, df, g * (1.0 - f), d[0] * (1.0 - r)
    return dx, (tl.zeros_like(c), g * f + df * v_f + dr * v_r), (df * c, dr * c)
