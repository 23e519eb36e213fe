"""The Triton kernels of one ATR step: layer norm and gates after the matrix product, forward and backward.

Layer norm needs whole rows, so a program has one row; u [B, H] has no bias. For all steps in one launch, see
`nmt.ops.atr.kernels`, which uses the gates of this file. Rows where the mask is 0 keep their state. All loads come
first: sums over a row are barriers, and loads after a barrier would add their latency again.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_rows import load_gradient, load_live, load_product, store_rows, sums, through_norm
from nmt.ops.triton_tools import load_row, sigmoid, store_row, tanh

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes


@triton.jit
def new_state(x, q, h, GATES: tl.constexpr, TANH_CANDIDATE: tl.constexpr, TANH_STATE: tl.constexpr):
    """The next state from input x, product q and state h; then i, f and the candidate.

    GATES is a word of `nmt.ops.atr.Gates`.
    """
    if GATES == "coupled":
        f = sigmoid(x - q)
        i = 1.0 - f
    else:
        i = sigmoid(x + q)
        f = 1.0 - i if GATES == "coupled_input" else sigmoid(x - q)
    candidate = tanh(x) if TANH_CANDIDATE else x
    new = i * candidate + f * h
    return tanh(new) if TANH_STATE else new, i, f, candidate


@triton.jit
def through_state(d, x, q, h, GATES: tl.constexpr, TANH_CANDIDATE: tl.constexpr, TANH_STATE: tl.constexpr):
    """The gradients of x, q and h from the gradient d of the state of `new_state`."""
    new, i, f, candidate = new_state(x, q, h, GATES, TANH_CANDIDATE, TANH_STATE)
    if TANH_STATE:
        d = d * (1.0 - new * new)
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
    dx += d * i * (1.0 - candidate * candidate) if TANH_CANDIDATE else d * i
    return dx, dq, d * f


@triton.jit(do_not_specialize=["sm_b"])
def atr_step_forward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_h, p_mask, p_new, p_narrow, sx_b, sm_b, H,
    GATES: tl.constexpr, TANH_CANDIDATE: tl.constexpr, TANH_STATE: tl.constexpr,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x, u [B, H], h fp32 [B, H] -> the new state [B, H], in fp32 and in the type of x."""
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    x = load_row(p_x + i_b * sx_b, o, H)
    h = load_row(p_h + i_b * H, o, H)
    live = load_live(p_mask, i_b, sm_b, MASKED)
    product = load_product(p_u + i_b * H, p_bias, None, p_scale, p_offset, o, H, 1, NORMALIZED)
    q, _, _ = sums(product, o, H, NORMALIZED)
    new, _, _, _ = new_state(x, q[0], h, GATES, TANH_CANDIDATE, TANH_STATE)
    new = tl.where(live, new, h)
    store_row(p_new + i_b * H, new, o, H)
    store_row(p_narrow + i_b * H, new, o, H)


@triton.jit(do_not_specialize=["sm_b"])
def atr_step_backward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_h, p_mask, p_pending, p_dout, p_gradient, p_dx, p_dq, p_du,
    sx_b, sm_b, so_b, sdx_b, H,
    GATES: tl.constexpr, TANH_CANDIDATE: tl.constexpr, TANH_STATE: tl.constexpr,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, PENDING: tl.constexpr, ADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the state is the sum of gradient fp32 [B, H], pending [B, H] and dout [B, H].

    h is the state before the step. Writes dx, dq and du [B, H], and to gradient the part for h without its product.
    """
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    x = load_row(p_x + i_b * sx_b, o, H)
    h = load_row(p_h + i_b * H, o, H)
    dh = load_gradient(p_gradient, p_pending, p_dout, i_b, so_b, o, H, PENDING, ADDED)
    live = load_live(p_mask, i_b, sm_b, MASKED)
    product = load_product(p_u + i_b * H, p_bias, None, p_scale, p_offset, o, H, 1, NORMALIZED)
    q, normal, factor = sums(product, o, H, NORMALIZED)
    d = tl.where(live, dh, 0.0)
    dx, dq, d_before = through_state(d, x, q[0], h, GATES, TANH_CANDIDATE, TANH_STATE)
    store_row(p_dx + i_b * sdx_b, dx, o, H)
    store_row(p_dq + i_b * H, dq, o, H)
    store_rows(p_du + i_b * H, through_norm((dq,), normal, product[2], factor, H, NORMALIZED), o, H)
    store_row(p_gradient + i_b * H, tl.where(live, d_before, dh), o, H)
