"""LRN: a step and its gradient in Triton, as `nmt.ops.scan.triton` calls them."""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import sigmoid, tanh

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803 - inside kernels constants are in capitals


@triton.jit
def step(x, state, vectors, OPTIONS: tl.constexpr):
    p, q, r = x
    h = sigmoid(p + state[0]) * r + sigmoid(q - state[0]) * state[0]
    if OPTIONS == 1:
        h = tanh(h)
    return (h,)


@triton.jit
def gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    p, q, r = x
    h = state[0]
    i = sigmoid(p + h)
    f = sigmoid(q - h)
    g = d[0]
    if OPTIONS == 1:
        y = tanh(i * r + f * h)
        g = g * (1.0 - y * y)
    dp = g * r * i * (1.0 - i)
    dq = g * h * f * (1.0 - f)
    return (dp, dq, g * i), (g * f + dp - dq,), ()
