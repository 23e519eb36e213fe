"""GRU in Triton: two products and two kernels per step, forward and backward.

Products u [B, 2H] and v [B, H] have no bias. Gates are computed again in the backward kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.ops.triton_rows import RowKernel, load_gradient, load_live, load_product, store_rows, sums, through_norm
from nmt.ops.triton_tools import load_row, sigmoid, store_row, tanh
from nmt.ops.unit import Step, rows_of

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes


@triton.jit
def _gates(product, o, H, NORMALIZED: tl.constexpr):
    """z and r; then their normalised product and its factor."""
    a, normal, factor = sums(product, o, H, NORMALIZED)
    return sigmoid(a[0]), sigmoid(a[1]), normal, factor


@triton.jit
def gru_gates_forward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_h, p_z, p_reset, sx_b, H,
    NORMALIZED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x [B, 3H], u [B, 2H], h fp32 [B, H] -> z fp32 [B, H] and reset = r * h [B, H], operand of the next product."""
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    h = load_row(p_h + i_b * H, o, H)
    product = load_product(p_u + i_b * 2 * H, p_bias, p_x + i_b * sx_b, p_scale, p_offset, o, H, 2, NORMALIZED)
    z, r, _, _ = _gates(product, o, H, NORMALIZED)
    store_row(p_z + i_b * H, z, o, H)
    store_row(p_reset + i_b * H, r * h, o, H)


@triton.jit(do_not_specialize=["sm_b"])
def gru_state_forward_kernel(
    p_x, p_v, p_bias, p_scale, p_offset, p_h, p_z, p_mask, p_new, p_narrow, sx_b, sm_b, H,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """x [B, 3H], v [B, H], h and z fp32 [B, H] -> the new state [B, H], in fp32 and in the type of x."""
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    z = load_row(p_z + i_b * H, o, H)
    h = load_row(p_h + i_b * H, o, H)
    live = load_live(p_mask, i_b, sm_b, MASKED)
    product = load_product(p_v + i_b * H, p_bias, p_x + i_b * sx_b + 2 * H, p_scale, p_offset, o, H, 1, NORMALIZED)
    a, _, _ = sums(product, o, H, NORMALIZED)
    new = tl.where(live, z * h + (1.0 - z) * tanh(a[0]), h)
    store_row(p_new + i_b * H, new, o, H)
    store_row(p_narrow + i_b * H, new, o, H)


@triton.jit(do_not_specialize=["sm_b"])
def gru_state_backward_kernel(
    p_x, p_u, p_v, p_bias, p_scale, p_offset, p_cbias, p_cscale, p_coffset, p_h, p_mask, p_pending, p_dout,
    p_gradient, p_dx, p_dv, sx_b, sm_b, so_b, sdx_b, H,
    NORMALIZED: tl.constexpr, MASKED: tl.constexpr, PENDING: tl.constexpr, ADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the state is the sum of gradient fp32 [B, H], pending [B, H] and dout [B, H].

    Writes dx of z and of the candidate, and dv; writes to `gradient` the part for h without products.
    """
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    h = load_row(p_h + i_b * H, o, H)
    dh = load_gradient(p_gradient, p_pending, p_dout, i_b, so_b, o, H, PENDING, ADDED)
    live = load_live(p_mask, i_b, sm_b, MASKED)
    p_x += i_b * sx_b
    gates = load_product(p_u + i_b * 2 * H, p_bias, p_x, p_scale, p_offset, o, H, 2, NORMALIZED)
    candidate = load_product(p_v + i_b * H, p_cbias, p_x + 2 * H, p_cscale, p_coffset, o, H, 1, NORMALIZED)
    z, _, _, _ = _gates(gates, o, H, NORMALIZED)
    a, normal, factor = sums(candidate, o, H, NORMALIZED)
    g = tanh(a[0])
    d = tl.where(live, dh, 0.0)
    da_g = d * (1.0 - z) * (1.0 - g * g)
    store_row(p_dx + i_b * sdx_b, d * (h - g) * z * (1.0 - z), o, H)
    store_row(p_dx + i_b * sdx_b + 2 * H, da_g, o, H)
    store_rows(p_dv + i_b * H, through_norm((da_g,), normal, candidate[2], factor, H, NORMALIZED), o, H)
    store_row(p_gradient + i_b * H, tl.where(live, d * z, dh), o, H)


@triton.jit
def gru_gates_backward_kernel(
    p_x, p_u, p_bias, p_scale, p_offset, p_h, p_dreset, p_gradient, p_dx, p_du, sx_b, sdx_b, H,
    NORMALIZED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """From dreset [B, H] and dx of z: dx of r, du [B, 2H], and the gradient of h through r * h.

    Where the mask is 0, dreset and dx of z are zero, and so are all results.
    """
    i_b = tl.program_id(0).to(tl.int64)
    o = tl.arange(0, BLOCK)
    p_dx += i_b * sdx_b
    d_reset = load_row(p_dreset + i_b * H, o, H)
    da_z = load_row(p_dx, o, H)
    h = load_row(p_h + i_b * H, o, H)
    dh = load_row(p_gradient + i_b * H, o, H)
    product = load_product(p_u + i_b * 2 * H, p_bias, p_x + i_b * sx_b, p_scale, p_offset, o, H, 2, NORMALIZED)
    _, r, normal, factor = _gates(product, o, H, NORMALIZED)
    da_r = d_reset * h * r * (1.0 - r)
    store_row(p_dx + H, da_r, o, H)
    du = through_norm((da_z, da_r), normal, product[2], factor, H, NORMALIZED)
    store_rows(p_du + i_b * 2 * H, du, o, H)
    store_row(p_gradient + i_b * H, dh + d_reset * r, o, H)


class GRUKernel(RowKernel):
    """GRU; saves the products of both matrices and r * h', the operand of the second matrix."""

    saved_widths = (2, 1, 1)
    written_widths = (2, 1)
    norm_widths = (2,), (1,)

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        product, candidate_product, reset = (saved[t] for saved in self.saved)
        (mask, sm_b), grid, hidden = rows_of(mask), (self.sizes.batch,), self.sizes.hidden
        h, z = before.parts, torch.empty_like(before.parts)
        self.matrices[0].forward(before.operand[0], out=product)
        gru_gates_forward_kernel[grid](
            x, product, *self.parameters[0], h, z, reset, x.stride(0), hidden, **self.launch
        )  # fmt: skip
        self.matrices[1].forward(reset, out=candidate_product)
        gru_state_forward_kernel[grid](
            x, candidate_product, *self.parameters[1], h, z, mask, after.parts, after.operand,
            x.stride(0), sm_b, hidden, MASKED=mask is not None, **self.launch,
        )  # fmt: skip

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> Tensor:
        t, x, before, after, mask = step
        (product, candidate_product, _), (d_product, d_candidate_product) = (
            [tensor[t] for tensor in tensors] for tensors in (self.saved, self.written)
        )
        (mask, sm_b), (d_output, so_b) = rows_of(mask), rows_of(d_output)
        gates, candidate = self.parameters
        h, grid, hidden = before.parts, (self.sizes.batch,), self.sizes.hidden
        gru_state_backward_kernel[grid](
            x, product, candidate_product, *gates, *candidate, h, mask, pending, d_output,
            gradient, dx, d_candidate_product, x.stride(0), sm_b, so_b, dx.stride(0), hidden,
            MASKED=mask is not None, PENDING=pending is not None, ADDED=d_output is not None, **self.launch,
        )  # fmt: skip
        d_reset = self.through(1, d_candidate_product)
        gru_gates_backward_kernel[grid](
            x, product, *gates, h, d_reset, gradient, dx, d_product, x.stride(0), dx.stride(0), hidden, **self.launch
        )  # fmt: skip
        return self.through(0, d_product)

    def sums(self, dx: Tensor) -> Sequence[Tensor]:
        return dx.split((2 * self.sizes.hidden, self.sizes.hidden), -1)
