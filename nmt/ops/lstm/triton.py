"""LSTM in Triton: one product and one kernel per step, forward and backward.

The product u [B, 4H] has no bias. Gates are computed again in the backward kernel. Without layer norm cuDNN can compute
the same equations, together with the input products: see `nmt.ops.lstm.fused`.
"""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from nmt.ops.triton_rows import RowKernel, load_gradient, load_live, load_product, store_rows, sums, through_norm
from nmt.ops.triton_tools import load_row, sigmoid, store_row, tanh
from nmt.ops.unit import Step, rows_of

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes


@triton.jit
def _load(p_x, p_u, p_bias, p_scale, p_offset, o, H, NORMALIZED: tl.constexpr):
    """The product of i, f and o, and the product of g, as arguments of `_gates`."""
    gates = load_product(p_u, p_bias, p_x, p_scale, p_offset, o, H, 3, NORMALIZED)
    if NORMALIZED:
        p_scale += 3 * H
        p_offset += 3 * H
    return gates, load_product(p_u + 3 * H, p_bias + 3 * H, p_x + 3 * H, p_scale, p_offset, o, H, 1, NORMALIZED)


@triton.jit
def _gates(gates, candidate, o, H, NORMALIZED: tl.constexpr):
    """i, f, o and g; then the normalised products and their factors, for the first three and for the last."""
    a, normal, factor = sums(gates, o, H, NORMALIZED)
    a_g, normal_g, factor_g = sums(candidate, o, H, NORMALIZED)
    return (sigmoid(a[0]), sigmoid(a[1]), sigmoid(a[2]), tanh(a_g[0])), normal, factor, normal_g, factor_g


@triton.jit(do_not_specialize=["sm_b"])
def lstm_forward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_h, p_c, p_mask, p_new, p_cnew, p_narrow, sx_b, sm_b, H,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x, u [B, 4H], h and c fp32 [B, H] -> the new state, both fp32 [B, H], and h again in the type of x."""
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    h = load_row(p_h + i_b * H, o, H)
    c = load_row(p_c + i_b * H, o, H)
    live = load_live(p_mask, i_b, sm_b, MASKED)
    gates, candidate = _load(p_x + i_b * sx_b, p_u + i_b * 4 * H, p_bias, p_scale, p_offset, o, H, NORMALIZED)
    opened, _, _, _, _ = _gates(gates, candidate, o, H, NORMALIZED)
    i, f, out, g = opened
    c_new = i * g + f * c
    new = tl.where(live, out * tanh(c_new), h)
    store_row(p_new + i_b * H, new, o, H)
    store_row(p_cnew + i_b * H, tl.where(live, c_new, c), o, H)
    store_row(p_narrow + i_b * H, new, o, H)


@triton.jit(do_not_specialize=["sm_b"])
def lstm_backward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_c, p_mask, p_pending, p_dout, p_gradient, p_cgradient, p_dx, p_du,
    sx_b, sm_b, so_b, sdx_b, H,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, PENDING: tl.constexpr, ADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of h is the sum of gradient fp32 [B, H], pending [B, H] and dout [B, H]; the gradient of c is
    cgradient.

    c is the memory before the step. Writes dx and du [B, 4H], and to gradient and cgradient the parts for the previous
    h and c without products.
    """
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    c = load_row(p_c + i_b * H, o, H)
    dh = load_gradient(p_gradient, p_pending, p_dout, i_b, so_b, o, H, PENDING, ADDED)
    dc = load_row(p_cgradient + i_b * H, o, H)
    live = load_live(p_mask, i_b, sm_b, MASKED)
    gates, candidate = _load(p_x + i_b * sx_b, p_u + i_b * 4 * H, p_bias, p_scale, p_offset, o, H, NORMALIZED)
    opened, normal, factor, normal_g, factor_g = _gates(gates, candidate, o, H, NORMALIZED)
    i, f, out, g = opened
    height = tanh(i * g + f * c)
    d = tl.where(live, dh, 0.0)
    store_row(p_gradient + i_b * H, tl.where(live, 0.0, dh), o, H)
    c_kept = tl.where(live, 0.0, dc)
    dc = tl.where(live, dc, 0.0) + d * out * (1.0 - height * height)
    store_row(p_cgradient + i_b * H, c_kept + dc * f, o, H)
    d_gates = (dc * g * i * (1.0 - i), dc * c * f * (1.0 - f), d * height * out * (1.0 - out))
    d_g = (dc * i * (1.0 - g * g),)
    store_rows(p_dx + i_b * sdx_b, d_gates + d_g, o, H)
    du = through_norm(d_gates, normal, gates[2], factor, H, NORMALIZED)
    du += through_norm(d_g, normal_g, candidate[2], factor_g, H, NORMALIZED)
    store_rows(p_du + i_b * 4 * H, du, o, H)


class LSTMKernel(RowKernel):
    """LSTM; saves its product."""

    saved_widths = written_widths = (4,)
    norm_widths = ((3, 1),)

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        product, (mask, sm_b) = self.saved[0][t], rows_of(mask)
        self.matrices[0].forward(before.operand[0], out=product)
        lstm_forward_kernel[(self.sizes.batch,)](
            x, product, *self.parameters[0], *before.parts, mask, *after.parts, after.operand,
            x.stride(0), sm_b, self.sizes.hidden, MASKED=mask is not None, **self.launch,
        )  # fmt: skip

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> Tensor:
        t, x, before, after, mask = step
        d_product, (mask, sm_b), (d_output, so_b) = self.written[0][t], rows_of(mask), rows_of(d_output)
        lstm_backward_kernel[(self.sizes.batch,)](
            x, self.saved[0][t], *self.parameters[0], before.parts[1], mask, pending, d_output, *gradient,
            dx, d_product, x.stride(0), sm_b, so_b, dx.stride(0), self.sizes.hidden,
            MASKED=mask is not None, PENDING=pending is not None, ADDED=d_output is not None, **self.launch,
        )  # fmt: skip
        return self.through(0, d_product)

    def sums(self, dx: Tensor) -> Sequence[Tensor]:
        return [dx]
