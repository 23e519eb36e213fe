"""oLRN: a step and its gradient in Triton, as `nmt.ops.scan.triton` calls them."""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import sigmoid, tanh

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803 - inside kernels constants are in capitals


@triton.jit
def step(x, state, vectors, OPTIONS: tl.constexpr):
    p, q, r, s = x
    c = sigmoid(p + state[0]) * r + sigmoid(q - state[0]) * state[0]
    if OPTIONS == 1:
        c = tanh(c)
    return (sigmoid(s - c) * c,)


@triton.jit
def gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    p, q, r, s = x
    h = state[0]
    i = sigmoid(p + h)
    f = sigmoid(q - h)
    c = i * r + f * h
    if OPTIONS == 1:
        c = tanh(c)
    o = sigmoid(s - c)
    ds = d[0] * c * o * (1.0 - o)
    g = d[0] * o - ds
    if OPTIONS == 1:
        g = g * (1.0 - c * c)
    dp = g * r * i * (1.0 - i)
    dq = g * h * f * (1.0 - f)
    return (dp, dq, g * i, ds), (g * f + dp - dq,), ()
