"""The gates of ATR in Triton, and their gradients, for all its kernels."""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import sigmoid

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals


@triton.jit
def input_and_forget(x, q, GATES: tl.constexpr):
    """i and f of input x and product q; GATES is a word of `nmt.ops.atr.reference.Gates`."""
    if GATES == "coupled":
        f = sigmoid(x - q)
        i = 1.0 - f
    else:
        i = sigmoid(x + q)
        f = 1.0 - i if GATES == "coupled_input" else sigmoid(x - q)
    return i, f


@triton.jit
def through_gates(d, candidate, h, i, f, GATES: tl.constexpr):
    """What x and q get through the gates, from the gradient d of i * candidate + f * h."""
    if GATES == "coupled_input":
        dx = d * (candidate - h) * (i * (1.0 - i))
        dq = dx
    elif GATES == "coupled":
        dx = d * (h - candidate) * (f * (1.0 - f))
        dq = -dx
    else:
        di = d * candidate * (i * (1.0 - i))
        df = d * h * f * (1.0 - f)
        dx = di + df
        dq = di - df
    return dx, dq
