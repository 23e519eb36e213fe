"""The Triton kernels of one LSTM step: what comes after its matrix product, forward and backward.

A program has one row with all its channels, so that it can normalise it. The product u [B, 4H] comes without bias.
Gates are computed again in the backward kernel. Rows where the mask is 0 keep their state. All loads come first: sums
over a row are barriers, behind which their latency would be waited for once more.
"""

from __future__ import annotations

import triton
import triton.language as tl

from nmt.ops.triton_tools import centred, inverse_deviation, load_row, sigmoid, store_row, tanh

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes


@triton.jit
def _sum_of(p_x, p_bias, o, H):
    return load_row(p_x, o, H) + load_row(p_bias, o, H)


@triton.jit
def _gates(p_x, p_u, p_bias, p_scale, p_offset, o, H, NORMALIZED: tl.constexpr):
    """i, f, o, g; what their products are normalised to, and the factors of the first three and of the last."""
    u_i = load_row(p_u, o, H)
    u_f = load_row(p_u + H, o, H)
    u_o = load_row(p_u + 2 * H, o, H)
    u_g = load_row(p_u + 3 * H, o, H)
    a_i = _sum_of(p_x, p_bias, o, H)
    a_f = _sum_of(p_x + H, p_bias + H, o, H)
    a_o = _sum_of(p_x + 2 * H, p_bias + 2 * H, o, H)
    a_g = _sum_of(p_x + 3 * H, p_bias + 3 * H, o, H)
    factor = 1.0
    factor_g = 1.0
    if NORMALIZED:
        scale_i = load_row(p_scale, o, H)
        scale_f = load_row(p_scale + H, o, H)
        scale_o = load_row(p_scale + 2 * H, o, H)
        scale_g = load_row(p_scale + 3 * H, o, H)
        offset_i = load_row(p_offset, o, H)
        offset_f = load_row(p_offset + H, o, H)
        offset_o = load_row(p_offset + 2 * H, o, H)
        offset_g = load_row(p_offset + 3 * H, o, H)
        mean = tl.sum(u_i + u_f + u_o, 0) / (3 * H)
        u_i = centred(u_i, mean, o, H)
        u_f = centred(u_f, mean, o, H)
        u_o = centred(u_o, mean, o, H)
        u_g = centred(u_g, tl.sum(u_g, 0) / H, o, H)
        factor = inverse_deviation(tl.sum(u_i * u_i + u_f * u_f + u_o * u_o, 0), 3 * H)
        factor_g = inverse_deviation(tl.sum(u_g * u_g, 0), H)
        u_i = u_i * factor
        u_f = u_f * factor
        u_o = u_o * factor
        u_g = u_g * factor_g
        a_i += u_i * scale_i + offset_i
        a_f += u_f * scale_f + offset_f
        a_o += u_o * scale_o + offset_o
        a_g += u_g * scale_g + offset_g
    else:
        a_i += u_i
        a_f += u_f
        a_o += u_o
        a_g += u_g
    return sigmoid(a_i), sigmoid(a_f), sigmoid(a_o), tanh(a_g), u_i, u_f, u_o, u_g, factor, factor_g


@triton.jit(do_not_specialize=["sm_b"])
def lstm_forward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_h, p_c, p_mask, p_new, p_cnew, p_narrow, sx_b, sm_b, H,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x, u [B, 4H], h and c fp32 [B, H] -> the new state, both fp32 [B, H], and h once more in narrow."""
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    c = load_row(p_c + i_b * H, o, H)
    if MASKED:
        h = load_row(p_h + i_b * H, o, H)
        live = tl.load(p_mask + i_b * sm_b) != 0
    i, f, out, g, _, _, _, _, _, _ = _gates(
        p_x + i_b * sx_b, p_u + i_b * 4 * H, p_bias, p_scale, p_offset, o, H, NORMALIZED
    )
    c_new = i * g + f * c
    new = out * tanh(c_new)
    if MASKED:
        c_new = tl.where(live, c_new, c)
        new = tl.where(live, new, h)
    store_row(p_new + i_b * H, new, o, H)
    store_row(p_cnew + i_b * H, c_new, o, H)
    store_row(p_narrow + i_b * H, new, o, H)


@triton.jit(do_not_specialize=["sm_b"])
def lstm_backward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_c, p_mask, p_pending, p_dout, p_gradient, p_cgradient, p_dx, p_du,
    sx_b, sm_b, so_b, sdx_b, H,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, PENDING: tl.constexpr, ADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of h comes in as gradient fp32 [B, H] + pending [B, H] + dout [B, H], that of c as cgradient.

    c is the memory before the step. Writes dx and du [B, 4H]; leaves what goes to h and c without a product.
    """
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    p_dx += i_b * sdx_b
    p_du += i_b * 4 * H
    c = load_row(p_c + i_b * H, o, H)
    dh = load_row(p_gradient + i_b * H, o, H)
    dc = load_row(p_cgradient + i_b * H, o, H)
    if PENDING:
        dh += load_row(p_pending + i_b * H, o, H)
    if ADDED:
        dh += load_row(p_dout + i_b * so_b, o, H)
    if MASKED:
        live = tl.load(p_mask + i_b * sm_b) != 0
    if NORMALIZED:
        scale_i = load_row(p_scale, o, H)
        scale_f = load_row(p_scale + H, o, H)
        scale_o = load_row(p_scale + 2 * H, o, H)
        scale_g = load_row(p_scale + 3 * H, o, H)
    i, f, out, g, u_i, u_f, u_o, u_g, factor, factor_g = _gates(
        p_x + i_b * sx_b, p_u + i_b * 4 * H, p_bias, p_scale, p_offset, o, H, NORMALIZED
    )
    kept = tl.zeros([BLOCK], tl.float32)
    c_kept = tl.zeros([BLOCK], tl.float32)
    if MASKED:
        kept = tl.where(live, 0.0, dh)
        c_kept = tl.where(live, 0.0, dc)
        dh = tl.where(live, dh, 0.0)
        dc = tl.where(live, dc, 0.0)
    height = tanh(i * g + f * c)
    dc += dh * out * (1.0 - height * height)
    da_i = dc * g * i * (1.0 - i)
    da_f = dc * c * f * (1.0 - f)
    da_o = dh * height * out * (1.0 - out)
    da_g = dc * i * (1.0 - g * g)
    store_row(p_gradient + i_b * H, kept, o, H)
    store_row(p_cgradient + i_b * H, c_kept + dc * f, o, H)
    store_row(p_dx, da_i, o, H)
    store_row(p_dx + H, da_f, o, H)
    store_row(p_dx + 2 * H, da_o, o, H)
    store_row(p_dx + 3 * H, da_g, o, H)
    if NORMALIZED:
        da_i = da_i * scale_i
        da_f = da_f * scale_f
        da_o = da_o * scale_o
        da_g = da_g * scale_g
        mean = tl.sum(da_i + da_f + da_o, 0) / (3 * H)
        slope = tl.sum(da_i * u_i + da_f * u_f + da_o * u_o, 0) / (3 * H)
        da_i = factor * (da_i - mean - u_i * slope)
        da_f = factor * (da_f - mean - u_f * slope)
        da_o = factor * (da_o - mean - u_o * slope)
        da_g = factor_g * (da_g - tl.sum(da_g, 0) / H - u_g * (tl.sum(da_g * u_g, 0) / H))
    store_row(p_du, da_i, o, H)
    store_row(p_du + H, da_f, o, H)
    store_row(p_du + 2 * H, da_o, o, H)
    store_row(p_du + 3 * H, da_g, o, H)
