"""SSRU: a step and its gradient in Triton, as `nmt.ops.scan.triton` calls them."""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import sigmoid

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803 - inside kernels constants are in capitals


@triton.jit
def step(x, state, vectors, OPTIONS: tl.constexpr):
    x_f, x_c = x
    c = x_c + sigmoid(x_f + vectors[0]) * (state[1] - x_c)
    return tl.where(c < 0.0, 0.0, c), c  # NaN stays


@triton.jit
def gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    x_f, x_c = x
    f = sigmoid(x_f + vectors[0])
    difference = state[1] - x_c
    g = d[1] + tl.where(x_c + f * difference <= 0.0, 0.0, d[0])
    df = g * difference * f * (1.0 - f)
    return (df, g * (1.0 - f)), (tl.zeros_like(f), g * f), (df,)
