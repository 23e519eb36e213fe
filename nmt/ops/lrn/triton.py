"""LRN and oLRN in Triton: one kernel forward and one backward, and the custom operator around them.

The recurrence is one of channels, so a program runs a block of channels of one sentence through time with the
state in registers. All addresses are known beforehand: loads are kept in flight by unrolling (`UNROLL`) or by
Triton's pipeliner (`STAGES`), see `nmt.ops.triton_tools.Launch`. Gates are computed again in the backward kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.ops.lrn.reference import lrn_reference
from nmt.ops.triton_tools import (
    Launch,
    as_launch,
    gradient_like,
    mask_bytes,
    mask_strides,
    one_direction,
    or_zeros,
    readable,
    sequence_like,
    sigmoid,
    state_like,
    tanh,
)

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803, SIM108 - inside kernels constants are in capitals, and sizes as in their shapes


@triton.jit(do_not_specialize=["T", "B", "sm_b"])
def lrn_forward_kernel(
    p_x, p_mask, p_first, p_out, p_last,
    sx_d, sx_b, sx_t, sm_b, sm_t, so_d, so_b, so_t,
    B, T, H,
    GATED: tl.constexpr, TANH: tl.constexpr, MASKED: tl.constexpr, STARTED: tl.constexpr,
    REVERSE: tl.constexpr, BOTH: tl.constexpr,
    BLOCK: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """x [D, B, T, 3H or 4H], mask [B, T], first and last [D, B, H], out [D, B, T, H]; grid (blocks * B, D).

    s counts steps in the order they are run, t is the position in the sentence.
    """
    n_blocks = tl.cdiv(H, BLOCK)
    i_d = tl.program_id(1)
    i_b = (tl.program_id(0) // n_blocks).to(tl.int64)
    o = (tl.program_id(0) % n_blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = o < H
    zero = tl.zeros([BLOCK], tl.int32)
    if BOTH:
        start = i_d * (T - 1)
        pace = 1 - 2 * i_d
    else:
        start = (T - 1) * REVERSE
        pace = 1 - 2 * REVERSE
    i_d = i_d.to(tl.int64)
    p_x += i_d * sx_d + i_b * sx_b
    p_out += i_d * so_d + i_b * so_b
    o_state = (i_d * B + i_b) * H + o
    if STARTED:
        h = tl.load(p_first + o_state, mask=inside, other=0.0)
    else:
        h = tl.zeros([BLOCK], tl.float32)
    for s0 in tl.range(0, T, UNROLL, num_stages=STAGES):
        b_p = ()
        b_q = ()
        b_r = ()
        b_s = ()
        b_live = ()
        for j in tl.static_range(UNROLL):
            s = s0 + j
            p = p_x + (start + s * pace) * sx_t + o
            within = inside if UNROLL == 1 else inside & (zero + s < T)
            b_p = b_p + (tl.load(p, mask=within, other=0.0),)
            b_q = b_q + (tl.load(p + H, mask=within, other=0.0),)
            b_r = b_r + (tl.load(p + 2 * H, mask=within, other=0.0),)
            if GATED:
                b_s = b_s + (tl.load(p + 3 * H, mask=within, other=0.0),)
            if MASKED:
                # clamped, because a predicate would cost more than a byte read twice
                b_live = b_live + (tl.load(p_mask + i_b * sm_b + (start + tl.minimum(s, T - 1) * pace) * sm_t),)
        for j in tl.static_range(UNROLL):
            s = s0 + j
            i = sigmoid(b_p[j].to(tl.float32) + h)
            f = sigmoid(b_q[j].to(tl.float32) - h)
            new = i * b_r[j].to(tl.float32) + f * h
            if TANH:
                new = tanh(new)
            if GATED:
                new = new * sigmoid(b_s[j].to(tl.float32) - new)
            within = inside if UNROLL == 1 else inside & (zero + s < T)
            if MASKED:
                new = tl.where(zero + b_live[j] != 0, new, h)
            h = new if UNROLL == 1 else tl.where(zero + s < T, new, h)
            tl.store(p_out + (start + s * pace) * so_t + o, h.to(p_out.dtype.element_ty), mask=within)
    tl.store(p_last + o_state, h, mask=inside)


@triton.jit(do_not_specialize=["T", "B", "sm_b"])
def lrn_backward_kernel(
    p_x, p_mask, p_first, p_out, p_dout, p_dlast, p_dx, p_dfirst,
    sx_d, sx_b, sx_t, sm_b, sm_t, so_d, so_b, so_t, sg_d, sg_b, sg_t, sdx_d, sdx_b, sdx_t,
    B, T, H,
    GATED: tl.constexpr, TANH: tl.constexpr, MASKED: tl.constexpr, STARTED: tl.constexpr,
    REVERSE: tl.constexpr, BOTH: tl.constexpr,
    BLOCK: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradients of x and the first state from those of the outputs and of the last; steps run from T - 1 to 0."""
    n_blocks = tl.cdiv(H, BLOCK)
    i_d = tl.program_id(1)
    i_b = (tl.program_id(0) // n_blocks).to(tl.int64)
    o = (tl.program_id(0) % n_blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = o < H
    zero = tl.zeros([BLOCK], tl.int32)
    if BOTH:
        start = i_d * (T - 1)
        pace = 1 - 2 * i_d
    else:
        start = (T - 1) * REVERSE
        pace = 1 - 2 * REVERSE
    i_d = i_d.to(tl.int64)
    p_x += i_d * sx_d + i_b * sx_b
    p_dx += i_d * sdx_d + i_b * sdx_b
    p_out += i_d * so_d + i_b * so_b
    p_dout += i_d * sg_d + i_b * sg_b
    o_state = (i_d * B + i_b) * H + o
    if STARTED:
        first = tl.load(p_first + o_state, mask=inside, other=0.0)
    else:
        first = tl.zeros([BLOCK], tl.float32)
    dh = tl.load(p_dlast + o_state, mask=inside, other=0.0)
    for r0 in tl.range(0, T, UNROLL, num_stages=STAGES):
        b_p = ()
        b_q = ()
        b_r = ()
        b_s = ()
        b_h = ()
        b_dout = ()
        b_live = ()
        for j in tl.static_range(UNROLL):
            s = T - 1 - (r0 + j)
            t = start + s * pace
            p = p_x + t * sx_t + o
            within = inside if UNROLL == 1 else inside & (zero + s >= 0)
            b_p = b_p + (tl.load(p, mask=within, other=0.0),)
            b_q = b_q + (tl.load(p + H, mask=within, other=0.0),)
            b_r = b_r + (tl.load(p + 2 * H, mask=within, other=0.0),)
            if GATED:
                b_s = b_s + (tl.load(p + 3 * H, mask=within, other=0.0),)
            b_h = b_h + (tl.load(p_out + (t - pace) * so_t + o, mask=inside & (zero + s > 0), other=0.0),)
            b_dout = b_dout + (tl.load(p_dout + t * sg_t + o, mask=within, other=0.0),)
            if MASKED:
                b_live = b_live + (tl.load(p_mask + i_b * sm_b + (start + tl.maximum(s, 0) * pace) * sm_t),)
        for j in tl.static_range(UNROLL):
            s = T - 1 - (r0 + j)
            within = inside if UNROLL == 1 else inside & (zero + s >= 0)
            h = tl.where(zero + s > 0, b_h[j].to(tl.float32), first)
            r = b_r[j].to(tl.float32)
            i = sigmoid(b_p[j].to(tl.float32) + h)
            f = sigmoid(b_q[j].to(tl.float32) - h)
            c = i * r + f * h
            dh += b_dout[j].to(tl.float32)
            d = dh
            kept = 0.0
            if MASKED:  # a dead step hands the gradient on to the state before it
                live = zero + b_live[j] != 0
                d = tl.where(live, dh, 0.0)
                kept = tl.where(live, 0.0, dh)
            if TANH:
                c = tanh(c)
            p = p_dx + (start + s * pace) * sdx_t + o
            if GATED:
                g = sigmoid(b_s[j].to(tl.float32) - c)
                ds = d * c * g * (1.0 - g)
                tl.store(p + 3 * H, ds.to(p_dx.dtype.element_ty), mask=within)
                d = d * g - ds
            if TANH:
                d = d * (1.0 - c * c)
            dp = d * r * i * (1.0 - i)
            dq = d * h * f * (1.0 - f)
            tl.store(p, dp.to(p_dx.dtype.element_ty), mask=within)
            tl.store(p + H, dq.to(p_dx.dtype.element_ty), mask=within)
            tl.store(p + 2 * H, (d * i).to(p_dx.dtype.element_ty), mask=within)
            before = kept + d * f + dp - dq
            dh = before if UNROLL == 1 else tl.where(zero + s >= 0, before, dh)
    tl.store(p_dfirst + o_state, dh, mask=inside)


def _parts(*, gated: bool) -> int:
    return 4 if gated else 3


@torch.library.custom_op(
    "nmt::lrn",
    mutates_args=(),
    schema="(Tensor x, Tensor? mask, Tensor? first, bool gated, bool tanh, bool reverse, int[]? launch)"
    " -> (Tensor, Tensor)",
)
def lrn_op(
    x: Tensor,
    mask: Tensor | None,
    first: Tensor | None,
    gated: bool,
    tanh: bool,
    reverse: bool,
    launch: list[int] | None,
) -> tuple[Tensor, Tensor]:
    """States [D, B, T, H] in the type of x and the last state [D, B, H] in fp32, of LRN or, `gated`, oLRN.

    x [D, B, T, 3H or 4H], mask [B, T] or None, first fp32 [D, B, H] or None. One direction (D = 1) runs as
    `reverse` says; of two the first runs forward and the second backward.
    """
    x, mask = readable(x), mask_bytes(mask)
    directions, batch, length, width = x.shape
    hidden = width // _parts(gated=gated)
    block, unroll, stages = as_launch(launch, x, hidden=hidden)
    outputs, last = sequence_like(x, hidden=hidden), state_like(x, hidden=hidden)
    with torch.cuda.device_of(x):
        lrn_forward_kernel[(triton.cdiv(hidden, block) * batch, directions)](
            x, mask, None if first is None else first.contiguous(), outputs, last,
            *x.stride()[:3], *mask_strides(mask), *outputs.stride()[:3],
            batch, length, hidden,
            GATED=gated, TANH=tanh, MASKED=mask is not None, STARTED=first is not None,
            REVERSE=int(reverse), BOTH=directions == 2, BLOCK=block, UNROLL=unroll, STAGES=stages, num_warps=1,
        )  # fmt: skip
    return outputs, last


@lrn_op.register_fake
def _(
    x: Tensor,
    mask: Tensor | None,
    first: Tensor | None,
    gated: bool,
    tanh: bool,
    reverse: bool,
    launch: list[int] | None,
) -> tuple[Tensor, Tensor]:
    hidden = x.size(-1) // _parts(gated=gated)
    return sequence_like(x, hidden=hidden), state_like(x, hidden=hidden)


@torch.library.custom_op(
    "nmt::lrn_backward",
    mutates_args=(),
    schema="(Tensor x, Tensor? mask, Tensor? first, Tensor outputs, Tensor d_outputs, Tensor d_last, bool gated,"
    " bool tanh, bool reverse, int[]? launch) -> (Tensor, Tensor)",
)
def lrn_backward_op(
    x: Tensor,
    mask: Tensor | None,
    first: Tensor | None,
    outputs: Tensor,
    d_outputs: Tensor,
    d_last: Tensor,
    gated: bool,
    tanh: bool,
    reverse: bool,
    launch: list[int] | None,
) -> tuple[Tensor, Tensor]:
    """Gradients of x, in its layout where that has no holes, and of the first state (also where that was None)."""
    dx, d_first = gradient_like(x), state_like(x, hidden=outputs.size(-1))
    x, mask, d_outputs = readable(x), mask_bytes(mask), readable(d_outputs)
    directions, batch, length, hidden = outputs.shape
    block, unroll, stages = as_launch(launch, x, hidden=hidden, backward=True)
    with torch.cuda.device_of(x):
        lrn_backward_kernel[(triton.cdiv(hidden, block) * batch, directions)](
            x, mask, None if first is None else first.contiguous(), outputs,
            d_outputs, d_last.contiguous(), dx, d_first,
            *x.stride()[:3], *mask_strides(mask), *outputs.stride()[:3], *d_outputs.stride()[:3], *dx.stride()[:3],
            batch, length, hidden,
            GATED=gated, TANH=tanh, MASKED=mask is not None, STARTED=first is not None,
            REVERSE=int(reverse), BOTH=directions == 2, BLOCK=block, UNROLL=unroll, STAGES=stages, num_warps=1,
        )  # fmt: skip
    return dx, d_first


@lrn_backward_op.register_fake
def _(
    x: Tensor,
    mask: Tensor | None,
    first: Tensor | None,
    outputs: Tensor,
    d_outputs: Tensor,
    d_last: Tensor,
    gated: bool,
    tanh: bool,
    reverse: bool,
    launch: list[int] | None,
) -> tuple[Tensor, Tensor]:
    return gradient_like(x), state_like(x, hidden=outputs.size(-1))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, mask, first, *ctx.options = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, mask, first, *output)


def _backward(ctx: Any, d_outputs: Tensor | None, d_last: Tensor | None) -> tuple[Tensor | None, ...]:
    x, mask, first, outputs, last = ctx.saved_tensors
    d_outputs, d_last = or_zeros(d_outputs, like=outputs), or_zeros(d_last, like=last)
    dx, d_first = lrn_backward_op(x, mask, first, outputs, d_outputs, d_last, *ctx.options)
    return dx, None, None if first is None else d_first, None, None, None, None


lrn_op.register_autograd(_backward, setup_context=_setup_context)


def lrn_triton(
    projected: Tensor,
    h: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool,
    tanh: bool,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor]:
    """See `nmt.ops.lrn.lrn_sequence`; `launch` overrides the rule of `nmt.ops.triton_tools.launch_rule`."""
    if projected.numel() == 0:
        return lrn_reference(projected, h, mask, reverse=reverse, tanh=tanh)
    outputs, last = lrn_op(projected.unsqueeze(0), mask, one_direction(h), False, tanh, reverse, launch)
    return outputs[0], last[0]


def lrn_both_triton(
    projected: Tensor, h: Tensor | None, mask: Tensor | None, *, tanh: bool, launch: Launch | None = None
) -> tuple[Tensor, Tensor]:
    """Both directions of an encoder layer in one launch, where one GEMM has projected for both.

    projected [B, T, 2, 3H], forward first; h [2, B, H] or None; mask [B, T] or None. Returns the outputs of both
    directions side by side [B, T, 2H] and their last states [2, B, H].
    """
    h = None if h is None else h.float()
    outputs, last = lrn_op(projected.permute(2, 0, 1, 3), mask, h, False, tanh, False, launch)
    return outputs.permute(1, 2, 0, 3).flatten(2), last
