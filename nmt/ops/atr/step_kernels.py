"""The Triton kernels of one ATR step: layer norm and gates after the matrix product, forward and backward.

The product with layer norm needs whole rows, so a program has one; u [B, H] comes without bias. For ATR without
layer norm, see `nmt.ops.atr.kernels`. Rows where the mask is 0 keep their state. All loads come first: sums over a row
are barriers, behind which their latency would be waited for once more.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.atr.gates import input_and_forget, through_gates
from nmt.ops.triton_tools import centred, inverse_deviation, load_row, store_row, tanh

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes


@triton.jit
def _product(p_u, p_bias, p_scale, p_offset, o, H, NORMALIZED: tl.constexpr):
    """q, what u is normalised to, and the factor of that."""
    u = load_row(p_u, o, H)
    factor = 1.0
    q = load_row(p_bias, o, H)
    if NORMALIZED:
        scale = load_row(p_scale, o, H)
        offset = load_row(p_offset, o, H)
        u = centred(u, tl.sum(u, 0) / H, o, H)
        factor = inverse_deviation(tl.sum(u * u, 0), H)
        u = u * factor
        q += u * scale + offset
    else:
        q += u
    return q, u, factor


@triton.jit(do_not_specialize=["sm_b"])
def atr_step_forward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_h, p_mask, p_new, p_narrow, sx_b, sm_b, H,
    GATES: tl.constexpr, TANH_CANDIDATE: tl.constexpr, TANH_STATE: tl.constexpr,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x, u [B, H], h fp32 [B, H] -> the new state, fp32 and narrow [B, H]."""
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    x = load_row(p_x + i_b * sx_b, o, H)
    h = load_row(p_h + i_b * H, o, H)
    if MASKED:
        live = tl.load(p_mask + i_b * sm_b) != 0
    q, _, _ = _product(p_u + i_b * H, p_bias, p_scale, p_offset, o, H, NORMALIZED)
    i, f = input_and_forget(x, q, GATES)
    new = i * (tanh(x) if TANH_CANDIDATE else x) + f * h
    if TANH_STATE:
        new = tanh(new)
    if MASKED:
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
    """The gradient of the state comes in as gradient fp32 [B, H] + pending [B, H] + dout [B, H].

    h is the state before the step. Writes dx, dq and du [B, H]; leaves what goes to h without a product.
    """
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    x = load_row(p_x + i_b * sx_b, o, H)
    h = load_row(p_h + i_b * H, o, H)
    dh = load_row(p_gradient + i_b * H, o, H)
    if PENDING:
        dh += load_row(p_pending + i_b * H, o, H)
    if ADDED:
        dh += load_row(p_dout + i_b * so_b, o, H)
    if MASKED:
        live = tl.load(p_mask + i_b * sm_b) != 0
    if NORMALIZED:
        scale = load_row(p_scale, o, H)
    q, u, factor = _product(p_u + i_b * H, p_bias, p_scale, p_offset, o, H, NORMALIZED)
    kept = tl.zeros([BLOCK], tl.float32)
    if MASKED:
        kept = tl.where(live, 0.0, dh)
        dh = tl.where(live, dh, 0.0)
    i, f = input_and_forget(x, q, GATES)
    candidate = tanh(x) if TANH_CANDIDATE else x
    if TANH_STATE:
        new = tanh(i * candidate + f * h)
        dh = dh * (1.0 - new * new)
    dx, dq = through_gates(dh, candidate, h, i, f, GATES)
    dx += dh * i * (1.0 - candidate * candidate) if TANH_CANDIDATE else dh * i
    store_row(p_dx + i_b * sdx_b, dx, o, H)
    store_row(p_dq + i_b * H, dq, o, H)
    if NORMALIZED:
        dq = dq * scale
        dq = factor * (dq - tl.sum(dq, 0) / H - u * (tl.sum(dq * u, 0) / H))
    store_row(p_du + i_b * H, dq, o, H)
    store_row(p_gradient + i_b * H, kept + dh * f, o, H)
