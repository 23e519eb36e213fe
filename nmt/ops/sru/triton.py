"""SRU in Triton: one kernel forward and one backward, and the custom operator around them.

Built as the kernels of LRN are (see `nmt.ops.lrn.triton`). The memories of all steps are kept for the backward
kernel, which computes the gates again. The gradients of the peepholes are summed over time in registers and
over the batch in torch: the same bits every time, no atomics.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.ops.sru.reference import sru_reference
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
)

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803, SIM108 - inside kernels constants are in capitals, and sizes as in their shapes

PARTS = 4


@triton.jit(do_not_specialize=["T", "B", "sm_b"])
def sru_forward_kernel(
    p_x, p_forget, p_reset, p_mask, p_h, p_c, p_out, p_memory, p_hlast, p_clast,
    sx_d, sx_b, sx_t, sm_b, sm_t, so_d, so_b, so_t,
    B, T, H,
    MASKED: tl.constexpr, STARTED: tl.constexpr, REVERSE: tl.constexpr, BOTH: tl.constexpr,
    BLOCK: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """x [D, B, T, 4H], peepholes [D, H], mask [B, T], states [D, B, H], out and memory [D, B, T, H] of one layout.

    Grid (blocks * B, D). s counts steps in the order they are run, t is the position in the sentence.
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
    o_row = i_d * so_d + i_b * so_b
    o_state = (i_d * B + i_b) * H + o
    v_f = tl.load(p_forget + i_d * H + o, mask=inside, other=0.0)
    v_r = tl.load(p_reset + i_d * H + o, mask=inside, other=0.0)
    if STARTED:
        h = tl.load(p_h + o_state, mask=inside, other=0.0)
        c = tl.load(p_c + o_state, mask=inside, other=0.0)
    else:
        h = tl.zeros([BLOCK], tl.float32)
        c = tl.zeros([BLOCK], tl.float32)
    for s0 in tl.range(0, T, UNROLL, num_stages=STAGES):
        b_r = ()
        b_f = ()
        b_c = ()
        b_h = ()
        b_live = ()
        for j in tl.static_range(UNROLL):
            s = s0 + j
            p = p_x + (start + s * pace) * sx_t + o
            within = inside if UNROLL == 1 else inside & (zero + s < T)
            b_r = b_r + (tl.load(p, mask=within, other=0.0),)
            b_f = b_f + (tl.load(p + H, mask=within, other=0.0),)
            b_c = b_c + (tl.load(p + 2 * H, mask=within, other=0.0),)
            b_h = b_h + (tl.load(p + 3 * H, mask=within, other=0.0),)
            if MASKED:
                b_live = b_live + (tl.load(p_mask + i_b * sm_b + (start + tl.minimum(s, T - 1) * pace) * sm_t),)
        for j in tl.static_range(UNROLL):
            s = s0 + j
            f = sigmoid(b_f[j].to(tl.float32) + v_f * c)
            r = sigmoid(b_r[j].to(tl.float32) + v_r * c)
            x_c = b_c[j].to(tl.float32)
            x_h = b_h[j].to(tl.float32)
            c_new = x_c + f * (c - x_c)
            h_new = x_h + r * (c_new - x_h)
            live = zero + s < T
            if MASKED:
                live = live & (zero + b_live[j] != 0)
            c = tl.where(live, c_new, c)
            h = tl.where(live, h_new, h)
            within = inside if UNROLL == 1 else inside & (zero + s < T)
            o_out = o_row + (start + s * pace) * so_t + o
            tl.store(p_out + o_out, h.to(p_out.dtype.element_ty), mask=within)
            tl.store(p_memory + o_out, c.to(p_memory.dtype.element_ty), mask=within)
    tl.store(p_hlast + o_state, h, mask=inside)
    tl.store(p_clast + o_state, c, mask=inside)


@triton.jit(do_not_specialize=["T", "B", "sm_b"])
def sru_backward_kernel(
    p_x, p_forget, p_reset, p_mask, p_c, p_memory, p_dout, p_dhlast, p_dclast, p_dx, p_dpeepholes, p_dh, p_dc,
    sx_d, sx_b, sx_t, sm_b, sm_t, so_d, so_b, so_t, sg_d, sg_b, sg_t, sdx_d, sdx_b, sdx_t,
    D, B, T, H,
    MASKED: tl.constexpr, STARTED: tl.constexpr, REVERSE: tl.constexpr, BOTH: tl.constexpr,
    BLOCK: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradients of x, the states and, for each sentence, the peepholes [2, D, B, H]; steps run from T - 1 to 0.

    A state reaches the next step only through c, so dh is carried only over dead steps.
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
    p_dx += i_d * sdx_d + i_b * sdx_b
    p_memory += i_d * so_d + i_b * so_b
    p_dout += i_d * sg_d + i_b * sg_b
    o_state = (i_d * B + i_b) * H + o
    v_f = tl.load(p_forget + i_d * H + o, mask=inside, other=0.0)
    v_r = tl.load(p_reset + i_d * H + o, mask=inside, other=0.0)
    if STARTED:
        first = tl.load(p_c + o_state, mask=inside, other=0.0)
    else:
        first = tl.zeros([BLOCK], tl.float32)
    dh = tl.load(p_dhlast + o_state, mask=inside, other=0.0)
    dc = tl.load(p_dclast + o_state, mask=inside, other=0.0)
    dv_f = tl.zeros([BLOCK], tl.float32)
    dv_r = tl.zeros([BLOCK], tl.float32)
    for r0 in tl.range(0, T, UNROLL, num_stages=STAGES):
        b_r = ()
        b_f = ()
        b_c = ()
        b_h = ()
        b_before = ()
        b_dout = ()
        b_live = ()
        for j in tl.static_range(UNROLL):
            s = T - 1 - (r0 + j)
            t = start + s * pace
            p = p_x + t * sx_t + o
            within = inside if UNROLL == 1 else inside & (zero + s >= 0)
            b_r = b_r + (tl.load(p, mask=within, other=0.0),)
            b_f = b_f + (tl.load(p + H, mask=within, other=0.0),)
            b_c = b_c + (tl.load(p + 2 * H, mask=within, other=0.0),)
            b_h = b_h + (tl.load(p + 3 * H, mask=within, other=0.0),)
            b_before = b_before + (tl.load(p_memory + (t - pace) * so_t + o, mask=inside & (zero + s > 0), other=0.0),)
            b_dout = b_dout + (tl.load(p_dout + t * sg_t + o, mask=within, other=0.0),)
            if MASKED:
                b_live = b_live + (tl.load(p_mask + i_b * sm_b + (start + tl.maximum(s, 0) * pace) * sm_t),)
        for j in tl.static_range(UNROLL):
            s = T - 1 - (r0 + j)
            c = tl.where(zero + s > 0, b_before[j].to(tl.float32), first)
            x_c = b_c[j].to(tl.float32)
            x_h = b_h[j].to(tl.float32)
            f = sigmoid(b_f[j].to(tl.float32) + v_f * c)
            r = sigmoid(b_r[j].to(tl.float32) + v_r * c)
            c_new = x_c + f * (c - x_c)
            dh += b_dout[j].to(tl.float32)
            live = zero + s >= 0
            if MASKED:
                live = live & (zero + b_live[j] != 0)
            d = tl.where(live, dh, 0.0)
            d_new = tl.where(live, dc, 0.0) + d * r
            d_reset = d * (c_new - x_h) * r * (1.0 - r)
            d_forget = d_new * (c - x_c) * f * (1.0 - f)
            dv_r += d_reset * c
            dv_f += d_forget * c
            p = p_dx + (start + s * pace) * sdx_t + o
            within = inside if UNROLL == 1 else inside & (zero + s >= 0)
            tl.store(p, d_reset.to(p_dx.dtype.element_ty), mask=within)
            tl.store(p + H, d_forget.to(p_dx.dtype.element_ty), mask=within)
            tl.store(p + 2 * H, (d_new * (1.0 - f)).to(p_dx.dtype.element_ty), mask=within)
            tl.store(p + 3 * H, (d * (1.0 - r)).to(p_dx.dtype.element_ty), mask=within)
            dh = tl.where(live, 0.0, dh)
            dc = tl.where(live, d_new * f + d_forget * v_f + d_reset * v_r, dc)
    tl.store(p_dpeepholes + o_state, dv_f, mask=inside)
    tl.store(p_dpeepholes + D * B * H + o_state, dv_r, mask=inside)
    tl.store(p_dh + o_state, dh, mask=inside)
    tl.store(p_dc + o_state, dc, mask=inside)


@torch.library.custom_op(
    "nmt::sru",
    mutates_args=(),
    schema="(Tensor x, Tensor forget, Tensor reset, Tensor? mask, Tensor? h, Tensor? c, bool reverse, int[]? launch)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def sru_op(
    x: Tensor,
    forget: Tensor,
    reset: Tensor,
    mask: Tensor | None,
    h: Tensor | None,
    c: Tensor | None,
    reverse: bool,
    launch: list[int] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs and memories [D, B, T, H] in the type of x, last h and last c [D, B, H] in fp32.

    x [D, B, T, 4H]; peepholes [D, H] and h, c [D, B, H] (both or neither None) fp32; mask [B, T] or None.
    One direction (D = 1) runs as `reverse` says; of two the first runs forward and the second backward.
    The memories are for the backward pass only and have no gradient.
    """
    x, mask = readable(x), mask_bytes(mask)
    directions, batch, length, width = x.shape
    hidden = width // PARTS
    block, unroll, stages = as_launch(launch, x, hidden=hidden)
    outputs, memories = sequence_like(x, hidden=hidden), sequence_like(x, hidden=hidden)
    h_last, c_last = state_like(x, hidden=hidden), state_like(x, hidden=hidden)
    with torch.cuda.device_of(x):
        sru_forward_kernel[(triton.cdiv(hidden, block) * batch, directions)](
            x, forget.contiguous(), reset.contiguous(), mask,
            None if h is None else h.contiguous(), None if c is None else c.contiguous(),
            outputs, memories, h_last, c_last,
            *x.stride()[:3], *mask_strides(mask), *outputs.stride()[:3],
            batch, length, hidden,
            MASKED=mask is not None, STARTED=c is not None, REVERSE=int(reverse), BOTH=directions == 2,
            BLOCK=block, UNROLL=unroll, STAGES=stages, num_warps=1,
        )  # fmt: skip
    return outputs, memories, h_last, c_last


@sru_op.register_fake
def _(
    x: Tensor,
    forget: Tensor,
    reset: Tensor,
    mask: Tensor | None,
    h: Tensor | None,
    c: Tensor | None,
    reverse: bool,
    launch: list[int] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    hidden = x.size(-1) // PARTS
    sequences = sequence_like(x, hidden=hidden), sequence_like(x, hidden=hidden)
    return *sequences, state_like(x, hidden=hidden), state_like(x, hidden=hidden)


@torch.library.custom_op(
    "nmt::sru_backward",
    mutates_args=(),
    schema="(Tensor x, Tensor forget, Tensor reset, Tensor? mask, Tensor? c, Tensor memories, Tensor d_outputs,"
    " Tensor d_h_last, Tensor d_c_last, bool reverse, int[]? launch) -> (Tensor, Tensor, Tensor, Tensor)",
)
def sru_backward_op(
    x: Tensor,
    forget: Tensor,
    reset: Tensor,
    mask: Tensor | None,
    c: Tensor | None,
    memories: Tensor,
    d_outputs: Tensor,
    d_h_last: Tensor,
    d_c_last: Tensor,
    reverse: bool,
    launch: list[int] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, of both peepholes for each sentence [2, D, B, H], of h and of c (also where they were None)."""
    dx, dpeepholes, dh, dc = _gradients(x, memories)
    x, mask, d_outputs = readable(x), mask_bytes(mask), readable(d_outputs)
    directions, batch, length, hidden = memories.shape
    block, unroll, stages = as_launch(launch, x, hidden=hidden, backward=True)
    with torch.cuda.device_of(x):
        sru_backward_kernel[(triton.cdiv(hidden, block) * batch, directions)](
            x, forget.contiguous(), reset.contiguous(), mask, None if c is None else c.contiguous(), memories,
            d_outputs, d_h_last.contiguous(), d_c_last.contiguous(), dx, dpeepholes, dh, dc,
            *x.stride()[:3], *mask_strides(mask), *memories.stride()[:3], *d_outputs.stride()[:3], *dx.stride()[:3],
            directions, batch, length, hidden,
            MASKED=mask is not None, STARTED=c is not None, REVERSE=int(reverse), BOTH=directions == 2,
            BLOCK=block, UNROLL=unroll, STAGES=stages, num_warps=1,
        )  # fmt: skip
    return dx, dpeepholes, dh, dc


def _gradients(x: Tensor, memories: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Room for what `sru_backward_op` returns."""
    directions, batch, _, hidden = memories.shape
    dpeepholes = x.new_empty(2, directions, batch, hidden, dtype=torch.float32)
    return gradient_like(x), dpeepholes, state_like(x, hidden=hidden), state_like(x, hidden=hidden)


@sru_backward_op.register_fake
def _(
    x: Tensor,
    forget: Tensor,
    reset: Tensor,
    mask: Tensor | None,
    c: Tensor | None,
    memories: Tensor,
    d_outputs: Tensor,
    d_h_last: Tensor,
    d_c_last: Tensor,
    reverse: bool,
    launch: list[int] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradients(x, memories)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    x, forget, reset, mask, _, c, *ctx.options = inputs
    _, memories, _, c_last = output
    ctx.mark_non_differentiable(memories)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, forget, reset, mask, c, memories, c_last)


def _backward(
    ctx: Any, d_outputs: Tensor | None, _: None, d_h_last: Tensor | None, d_c_last: Tensor | None
) -> tuple[Tensor | None, ...]:
    x, forget, reset, mask, c, memories, c_last = ctx.saved_tensors
    d_outputs = or_zeros(d_outputs, like=memories)
    d_h_last, d_c_last = or_zeros(d_h_last, like=c_last), or_zeros(d_c_last, like=c_last)
    dx, dpeepholes, dh, dc = sru_backward_op(
        x, forget, reset, mask, c, memories, d_outputs, d_h_last, d_c_last, *ctx.options
    )
    d_forget, d_reset = dpeepholes.sum(2).unbind(0)
    started = c is not None
    return dx, d_forget, d_reset, None, dh if started else None, dc if started else None, None, None


sru_op.register_autograd(_backward, setup_context=_setup_context)


def _both_or_neither(h: Tensor | None, c: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    if h is None and c is not None:
        h = torch.zeros_like(c)
    if c is None and h is not None:
        c = torch.zeros_like(h)
    return h, c


def sru_triton(
    projected: Tensor,
    peephole_forget: Tensor,
    peephole_reset: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    mask: Tensor | None,
    *,
    reverse: bool,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `nmt.ops.sru.sru_sequence`; `launch` overrides the rule of `nmt.ops.triton_tools.launch_rule`."""
    if projected.numel() == 0:
        return sru_reference(projected, peephole_forget, peephole_reset, h, c, mask, reverse=reverse)
    h, c = _both_or_neither(h, c)
    peepholes = peephole_forget.float().unsqueeze(0), peephole_reset.float().unsqueeze(0)
    state = one_direction(h), one_direction(c)
    outputs, _, h_last, c_last = sru_op(projected.unsqueeze(0), *peepholes, mask, *state, reverse, launch)
    return outputs[0], h_last[0], c_last[0]


def sru_both_triton(
    projected: Tensor,
    peephole_forget: Tensor,
    peephole_reset: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    mask: Tensor | None,
    *,
    launch: Launch | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Both directions of an encoder layer in one launch, where one GEMM has projected for both.

    projected [B, T, 2, 4H], forward first; peepholes [2, H]; h, c [2, B, H] or None; mask [B, T] or None. Returns
    the outputs of both directions side by side [B, T, 2H] and the last h and c [2, B, H].
    """
    h, c = (None if state is None else state.float() for state in _both_or_neither(h, c))
    peepholes = peephole_forget.float(), peephole_reset.float()
    outputs, _, h_last, c_last = sru_op(projected.permute(2, 0, 1, 3), *peepholes, mask, h, c, False, launch)
    return outputs.permute(1, 2, 0, 3).flatten(2), h_last, c_last
