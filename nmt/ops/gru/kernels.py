"""The Triton kernels of one GRU step: what lies between its two matrix products, forward and backward.

A program has one row with all its channels, so that it can normalise it. Products u [B, 2H] and v [B, H] come
without bias. Gates are computed again in the backward kernels. Rows where the mask is 0 keep their state. All loads
come first: sums over a row are barriers, behind which their latency would be waited for once more.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import centred, inverse_deviation, load_row, sigmoid, store_row, tanh

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes


@triton.jit
def _gates(p_x, p_u, p_bias, p_scale, p_offset, o, H, NORMALIZED: tl.constexpr):
    """z and r, and of their product what it is normalised to, and the factor of that."""
    u_z = load_row(p_u, o, H)
    u_r = load_row(p_u + H, o, H)
    factor = 1.0
    a_z = load_row(p_x, o, H) + load_row(p_bias, o, H)
    a_r = load_row(p_x + H, o, H) + load_row(p_bias + H, o, H)
    if NORMALIZED:
        scale_z = load_row(p_scale, o, H)
        scale_r = load_row(p_scale + H, o, H)
        offset_z = load_row(p_offset, o, H)
        offset_r = load_row(p_offset + H, o, H)
        mean = tl.sum(u_z + u_r, 0) / (2 * H)
        u_z = centred(u_z, mean, o, H)
        u_r = centred(u_r, mean, o, H)
        factor = inverse_deviation(tl.sum(u_z * u_z + u_r * u_r, 0), 2 * H)
        u_z = u_z * factor
        u_r = u_r * factor
        a_z += u_z * scale_z + offset_z
        a_r += u_r * scale_r + offset_r
    else:
        a_z += u_z
        a_r += u_r
    return sigmoid(a_z), sigmoid(a_r), u_z, u_r, factor


@triton.jit
def _candidate_rows(p_x, p_v, p_bias, p_scale, p_offset, o, H, NORMALIZED: tl.constexpr):
    """What `_candidate` takes."""
    scale = 1.0
    offset = 0.0
    if NORMALIZED:
        scale = load_row(p_scale, o, H)
        offset = load_row(p_offset, o, H)
    return load_row(p_v, o, H), load_row(p_x + 2 * H, o, H) + load_row(p_bias, o, H), scale, offset


@triton.jit
def _candidate(v, a, scale, offset, o, H, NORMALIZED: tl.constexpr):
    """g, and of its product v what it is normalised to, and the factor of that."""
    factor = 1.0
    if NORMALIZED:
        v = centred(v, tl.sum(v, 0) / H, o, H)
        factor = inverse_deviation(tl.sum(v * v, 0), H)
        v = v * factor
        a += v * scale + offset
    else:
        a += v
    return tanh(a), v, factor


@triton.jit
def gru_gates_forward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_h, p_z, p_reset, sx_b, H,
    NORMALIZED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x [B, 3H], u [B, 2H], h fp32 [B, H] -> z fp32 [B, H] and reset = r * h [B, H], which is multiplied next."""
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    h = load_row(p_h + i_b * H, o, H)
    z, r, _, _, _ = _gates(p_x + i_b * sx_b, p_u + i_b * 2 * H, p_bias, p_scale, p_offset, o, H, NORMALIZED)
    store_row(p_z + i_b * H, z, o, H)
    store_row(p_reset + i_b * H, r * h, o, H)


@triton.jit(do_not_specialize=["sm_b"])
def gru_state_forward_kernel(
    p_x, p_v, p_bias, p_scale, p_offset, p_h, p_z, p_mask, p_new, p_narrow, sx_b, sm_b, H,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x [B, 3H], v [B, H], h and z fp32 [B, H] -> the new state, fp32 and narrow [B, H]."""
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    z = load_row(p_z + i_b * H, o, H)
    h = load_row(p_h + i_b * H, o, H)
    if MASKED:
        live = tl.load(p_mask + i_b * sm_b) != 0
    v, a, scale, offset = _candidate_rows(p_x + i_b * sx_b, p_v + i_b * H, p_bias, p_scale, p_offset, o, H, NORMALIZED)
    g, _, _ = _candidate(v, a, scale, offset, o, H, NORMALIZED)
    new = z * h + (1.0 - z) * g
    if MASKED:
        new = tl.where(live, new, h)
    store_row(p_new + i_b * H, new, o, H)
    store_row(p_narrow + i_b * H, new, o, H)


@triton.jit(do_not_specialize=["sm_b"])
def gru_state_backward_kernel(
    p_x, p_u, p_v, p_bias, p_scale, p_offset, p_cbias, p_cscale, p_coffset, p_h, p_mask, p_pending, p_dout,
    p_gradient, p_dx, p_dv, sx_b, sm_b, so_b, sdx_b, H,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, PENDING: tl.constexpr, ADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the state comes in as gradient fp32 [B, H] + pending [B, H] + dout [B, H].

    Writes dx of z and of the candidate and dv; leaves in `gradient` what goes to h without a product.
    """
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    p_x += i_b * sx_b
    p_dx += i_b * sdx_b
    h = load_row(p_h + i_b * H, o, H)
    dh = load_row(p_gradient + i_b * H, o, H)
    if PENDING:
        dh += load_row(p_pending + i_b * H, o, H)
    if ADDED:
        dh += load_row(p_dout + i_b * so_b, o, H)
    if MASKED:
        live = tl.load(p_mask + i_b * sm_b) != 0
    v, a, scale, offset = _candidate_rows(p_x, p_v + i_b * H, p_cbias, p_cscale, p_coffset, o, H, NORMALIZED)
    z, _, _, _, _ = _gates(p_x, p_u + i_b * 2 * H, p_bias, p_scale, p_offset, o, H, NORMALIZED)
    g, v, factor = _candidate(v, a, scale, offset, o, H, NORMALIZED)
    kept = tl.zeros([BLOCK], tl.float32)
    if MASKED:
        kept = tl.where(live, 0.0, dh)
        dh = tl.where(live, dh, 0.0)
    da_z = dh * (h - g) * z * (1.0 - z)
    da_g = dh * (1.0 - z) * (1.0 - g * g)
    store_row(p_dx, da_z, o, H)
    store_row(p_dx + 2 * H, da_g, o, H)
    dv = da_g
    if NORMALIZED:
        dv = da_g * scale
        dv = factor * (dv - tl.sum(dv, 0) / H - v * (tl.sum(dv * v, 0) / H))
    store_row(p_dv + i_b * H, dv, o, H)
    store_row(p_gradient + i_b * H, kept + dh * z, o, H)


@triton.jit
def gru_gates_backward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_h, p_dreset, p_gradient, p_dx, p_du, sx_b, sdx_b, H,
    NORMALIZED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From dreset [B, H] and dx of z: dx of r, du [B, 2H], and what goes to h through r * h.

    Where the mask is 0, dreset and dx of z are zero, and with them all of it.
    """
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    p_x += i_b * sx_b
    p_dx += i_b * sdx_b
    p_du += i_b * 2 * H
    d_reset = load_row(p_dreset + i_b * H, o, H)
    da_z = load_row(p_dx, o, H)
    h = load_row(p_h + i_b * H, o, H)
    dh = load_row(p_gradient + i_b * H, o, H)
    if NORMALIZED:
        scale_z = load_row(p_scale, o, H)
        scale_r = load_row(p_scale + H, o, H)
    _, r, u_z, u_r, factor = _gates(p_x, p_u + i_b * 2 * H, p_bias, p_scale, p_offset, o, H, NORMALIZED)
    da_r = d_reset * h * r * (1.0 - r)
    store_row(p_dx + H, da_r, o, H)
    if NORMALIZED:
        da_z = da_z * scale_z
        da_r = da_r * scale_r
        mean = tl.sum(da_z + da_r, 0) / (2 * H)
        slope = tl.sum(da_z * u_z + da_r * u_r, 0) / (2 * H)
        da_z = factor * (da_z - mean - u_z * slope)
        da_r = factor * (da_r - mean - u_r * slope)
    store_row(p_du, da_z, o, H)
    store_row(p_du + H, da_r, o, H)
    store_row(p_gradient + i_b * H, dh + d_reset * r, o, H)
