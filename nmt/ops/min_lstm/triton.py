"""minLSTM: a step and its gradient in Triton, as `nmt.ops.scan.triton` calls them."""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.min_gru.triton import positive_part, positive_slope
from nmt.ops.triton_tools import LOG2_E, reciprocal

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803 - inside kernels constants are in capitals


@triton.jit
def powers_of(f, i):
    """e^-m, e^(-f - m) and e^(-i - m), m being the greatest of 0, -f and -i; see native.c."""
    m = tl.maximum(tl.maximum(-f, -i), 0.0)
    return tl.exp2(m * -LOG2_E), tl.exp2((f + m) * -LOG2_E), tl.exp2((i + m) * -LOG2_E)


@triton.jit
def step(x, state, vectors, OPTIONS: tl.constexpr):
    one, e_f, e_i = powers_of(x[0] + vectors[0], x[1] + vectors[1])
    g = x[2] + vectors[2]
    if OPTIONS == 1:
        g = positive_part(g)
    old = one + e_i
    new = one + e_f
    return ((old * state[0] + new * g) * reciprocal(old + new),)


@triton.jit
def gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    one, e_f, e_i = powers_of(x[0] + vectors[0], x[1] + vectors[1])
    g = x[2] + vectors[2]
    old = one + e_i
    new = one + e_f
    factor = reciprocal(old + new)
    dg = d[0] * new * factor
    if OPTIONS == 1:
        dg = dg * positive_slope(g)
        g = positive_part(g)
    gate = d[0] * (state[0] - g) * factor * factor
    df = gate * old * e_f
    di = -gate * new * e_i
    return (df, di, dg), (d[0] * old * factor,), (df, di, dg)
