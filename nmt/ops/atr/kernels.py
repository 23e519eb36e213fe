"""The Triton kernels of ATR: all steps in one launch, or, from the same text, one step in each.

A program owns BM sentences and BN channels. Its BN rows of the recurrent matrix stay on chip for the whole
sequence, its state in registers. All programs of the same sentences need each other's states: they exchange them
through the outputs and wait for each other once a step at a counter in global memory (`PERSISTENT`). All of them
must therefore run at the same time (a cooperative launch). Without `PERSISTENT` a launch runs the steps it is told
to, one, and the ends of launches are the barriers: the same bits, for tests to compare.
"""

from __future__ import annotations

from typing import Final

import triton
import triton.language as tl

from nmt.ops.atr.gates import input_and_forget, through_gates
from nmt.ops.triton_tools import tanh

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803, N806 - inside kernels constants are in capitals, and sizes as in their shapes

COUNTER: Final = tl.constexpr(32)
"""int32 from one counter to the next: each has its own 128-byte line."""

MOST_POLLS: Final = tl.constexpr(4_000_000)
"""After some seconds of waiting, in all steps together, a program goes on with NaN: a bug is seen, and hangs no GPU."""


@triton.jit
def _arrive(p_count):
    tl.debug_barrier()  # the stores of all threads come before the release of the one that counts
    tl.atomic_add(p_count, 1, sem="release", scope="gpu")


@triton.jit
def _wait(p_count, target, polls):
    """Returns how often it, and the waits before it, have polled."""
    # The value polled must be the acquire itself: Triton 3.6 drops an atomic whose result nobody uses.
    while (tl.atomic_add(p_count, 0, sem="acquire", scope="gpu") < target) & (polls < MOST_POLLS):
        polls += 1
    tl.debug_barrier()
    return polls


@triton.jit
def _zero(polls):
    """What sums start from: 0 or, when the others were waited for in vain, NaN."""
    return tl.where(polls < MOST_POLLS, 0.0, float("nan"))


@triton.jit
def _weight(p_weight, o_out, o_in, s_out, s_in, H: tl.constexpr, EVEN: tl.constexpr):
    """A tile [in, out] of the matrix."""
    p = p_weight + o_out[None, :] * s_out + o_in[:, None] * s_in
    if EVEN:
        return tl.load(p)
    return tl.load(p, mask=(o_out[None, :] < H) & (o_in[:, None] < H), other=0.0)


@triton.jit
def _rows(p, o_rows, rows, H: tl.constexpr, KC: tl.constexpr, EVEN: tl.constexpr, DTYPE: tl.constexpr):
    """Whole rows of H as tiles [BM, KC]; all of them are requested before the first is used.

    Other multiprocessors wrote them: `.cg` keeps a stale line of the L1 cache from being read.
    """
    tiles = ()
    n_tiles: tl.constexpr = (H + KC - 1) // KC
    for k in tl.static_range(n_tiles):
        o = k * KC + tl.arange(0, KC)
        within = rows[:, None] if EVEN else rows[:, None] & (o[None, :] < H)
        tile = tl.load(p + o_rows[:, None] + o[None, :], mask=within, other=0.0, cache_modifier=".cg")
        tiles = tiles + (tile.to(DTYPE),)
    return tiles


@triton.jit
def _product(tiles, weights, zero, N: tl.constexpr, PRECISION: tl.constexpr):
    """The sum of N products of tiles, each with an accumulator of its own: N short chains instead of a long one.

    `zero` must be one the compiler cannot see through, else it makes one chain again.
    """
    first = tl.zeros([tiles[0].shape[0], weights[0].shape[1]], tl.float32) + zero
    parts = ()
    for i in tl.static_range(N):
        parts = parts + (tl.dot(tiles[i], weights[i], first, input_precision=PRECISION),)
    total = parts[0]  # type: ignore[misc]
    for i in tl.static_range(N - 1):
        total = total + parts[i + 1]
    return total


@triton.jit(do_not_specialize=["sm_b", "B", "T", "row_from", "row_to", "step_from", "step_to"])
def atr_forward_kernel(
    p_x, p_weight, p_bias, p_mask, p_first, p_state, p_out, p_count,
    sw_o, sw_i, sx_d, sx_b, sx_t, sm_b, sm_t, so_d, so_b, so_t,
    B, T, row_from, row_to, step_from, step_to,
    H: tl.constexpr, GATES: tl.constexpr, TANH_CANDIDATE: tl.constexpr, TANH_STATE: tl.constexpr,
    MASKED: tl.constexpr, REVERSE: tl.constexpr, BOTH: tl.constexpr,
    PERSISTENT: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, KC: tl.constexpr,
):  # fmt: skip
    """Steps step_from .. step_to of sentences row_from .. row_to; s counts steps as they are run.

    x, out [D, B, T, H]; weight [D, H, H] with rows sw_o and values of a row sw_i apart, bias [D, H], mask [B, T];
    first and state fp32 [D, B, H], the latter the state before step_from, then the one after the last step.
    """
    EVEN: tl.constexpr = H % BN == 0 and H % KC == 0
    DTYPE: tl.constexpr = p_weight.dtype.element_ty
    n_blocks: tl.constexpr = (H + BN - 1) // BN
    n_tiles: tl.constexpr = (H + KC - 1) // KC
    n_groups = tl.cdiv(row_to - row_from, BM)
    i_group = tl.program_id(0) // n_blocks
    i_d = i_group // n_groups
    p_count += i_group * COUNTER
    if BOTH:
        start = i_d * (T - 1)
        pace = 1 - 2 * i_d
    else:
        start = (T - 1) * REVERSE
        pace = 1 - 2 * REVERSE
    i_d = i_d.to(tl.int64)
    b = row_from + (i_group % n_groups) * BM + tl.arange(0, BM)
    rows = b < row_to
    b = b.to(tl.int64)
    o = (tl.program_id(0) % n_blocks) * BN + tl.arange(0, BN)
    within = rows[:, None] if EVEN else rows[:, None] & (o[None, :] < H)
    p_x += i_d * sx_d
    p_out += i_d * so_d
    weights = ()
    for k in tl.static_range(n_tiles):
        weights = weights + (_weight(p_weight + i_d * H * H, o, k * KC + tl.arange(0, KC), sw_o, sw_i, H, EVEN),)
    bias = tl.load(p_bias + i_d * H + o, mask=o < H, other=0.0)
    o_first = (i_d * B + b) * H
    o_state = o_first[:, None] + o[None, :]
    h = tl.load(p_state + o_state, mask=within, other=0.0)
    polls = tl.minimum(step_from, 0)  # 0, but the compiler cannot know
    for s in range(step_from, step_to):
        t = start + s * pace
        # Loaded before the wait and touched only after the product: converted here they would delay both.
        stored_x = tl.load(p_x + (b * sx_b + t * sx_t)[:, None] + o[None, :], mask=within, other=0.0)
        if MASKED:
            stored_mask = tl.load(p_mask + b * sm_b + t * sm_t, mask=rows, other=0)
        if PERSISTENT and s > step_from:
            polls = _wait(p_count, (s - step_from) * n_blocks, polls)
        if s == 0:
            tiles = _rows(p_first, o_first, rows, H, KC, EVEN, DTYPE)
        else:
            tiles = _rows(p_out, b * so_b + (t - pace) * so_t, rows, H, KC, EVEN, DTYPE)
        q = _product(tiles, weights, _zero(polls), n_tiles, PRECISION) + bias[None, :]
        x = stored_x.to(tl.float32)
        i, f = input_and_forget(x, q, GATES)
        new = i * (tanh(x) if TANH_CANDIDATE else x) + f * h
        if TANH_STATE:
            new = tanh(new)
        h = tl.where((stored_mask != 0)[:, None], new, h) if MASKED else new
        tl.store(p_out + (b * so_b + t * so_t)[:, None] + o[None, :], h.to(p_out.dtype.element_ty), mask=within)
        if PERSISTENT:
            _arrive(p_count)
    tl.store(p_state + o_state, h, mask=within)


@triton.jit(do_not_specialize=["sm_b", "B", "T", "row_from", "row_to", "step_from", "step_to"])
def atr_backward_kernel(
    p_x, p_product, p_product0, p_weight, p_bias, p_mask, p_first, p_out, p_dout, p_dstate, p_dx, p_dq, p_dq0, p_count,
    sx_d, sx_b, sx_t, sm_b, sm_t, so_d, so_b, so_t, sg_d, sg_b, sg_t, sdx_d, sdx_b, sdx_t,
    B, T, row_from, row_to, step_from, step_to,
    H: tl.constexpr, GATES: tl.constexpr, TANH_CANDIDATE: tl.constexpr, TANH_STATE: tl.constexpr,
    MASKED: tl.constexpr, REVERSE: tl.constexpr, BOTH: tl.constexpr,
    PERSISTENT: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, KC: tl.constexpr,
):  # fmt: skip
    """Gradients, from the last step to the first; n counts from 0, and n = T is only the product of the last dq.

    product, dq [D, B, T, H] have the layout of out, product0, dq0 [D, B, H] belong to the first state. Both are
    stored where the state is that they are a product of, or the gradient through: those of step s stand at the
    position of step s - 1. So the whole of dq, zero at the last state, is one operand of the weight's gradient.
    dstate fp32 [D, B, H] is the gradient of the state, handed in and out.
    """
    EVEN: tl.constexpr = H % BN == 0 and H % KC == 0
    DTYPE: tl.constexpr = p_weight.dtype.element_ty
    n_blocks: tl.constexpr = (H + BN - 1) // BN
    n_tiles: tl.constexpr = (H + KC - 1) // KC
    n_groups = tl.cdiv(row_to - row_from, BM)
    i_group = tl.program_id(0) // n_blocks
    i_d = i_group // n_groups
    p_count += i_group * COUNTER
    if BOTH:
        start = i_d * (T - 1)
        pace = 1 - 2 * i_d
    else:
        start = (T - 1) * REVERSE
        pace = 1 - 2 * REVERSE
    i_d = i_d.to(tl.int64)
    b = row_from + (i_group % n_groups) * BM + tl.arange(0, BM)
    rows = b < row_to
    zero = tl.zeros([BM], tl.int32)
    b = b.to(tl.int64)
    o = (tl.program_id(0) % n_blocks) * BN + tl.arange(0, BN)
    within = rows[:, None] if EVEN else rows[:, None] & (o[None, :] < H)
    p_x += i_d * sx_d
    p_dx += i_d * sdx_d
    p_out += i_d * so_d
    p_product += i_d * so_d
    p_dq += i_d * so_d
    p_dout += i_d * sg_d
    weights = ()
    for k in tl.static_range(n_tiles):
        weights = weights + (_weight(p_weight + i_d * H * H, o, k * KC + tl.arange(0, KC), 1, H, H, EVEN),)
    bias = tl.load(p_bias + i_d * H + o, mask=o < H, other=0.0)
    o_first = (i_d * B + b) * H
    o_state = o_first[:, None] + o[None, :]
    dh = tl.load(p_dstate + o_state, mask=within, other=0.0)
    polls = tl.minimum(step_from, 0)
    for n in range(step_from, step_to):
        s = T - 1 - n
        t = start + s * pace
        real = within & (zero + s >= 0)[:, None]
        later = within & (zero + s > 0)[:, None]
        o_now = (b * so_b + t * so_t)[:, None] + o[None, :]
        o_before = (b * so_b + (t - pace) * so_t)[:, None] + o[None, :]
        stored_x = tl.load(p_x + (b * sx_b + t * sx_t)[:, None] + o[None, :], mask=real, other=0.0)
        stored_dout = tl.load(p_dout + (b * sg_b + t * sg_t)[:, None] + o[None, :], mask=real, other=0.0)
        stored_q = tl.load(p_product + o_before, mask=later, other=0.0)
        stored_h = tl.load(p_out + o_before, mask=later, other=0.0)
        live = rows & (zero + s >= 0)
        if MASKED:
            stored_mask = tl.load(p_mask + b * sm_b + t * sm_t, mask=live, other=0)
        if n > 0:
            if PERSISTENT and n > step_from:
                polls = _wait(p_count, (n - step_from) * n_blocks, polls)
            if s >= 0:
                tiles = _rows(p_dq, b * so_b + t * so_t, rows, H, KC, EVEN, DTYPE)
            else:
                tiles = _rows(p_dq0, o_first, rows, H, KC, EVEN, DTYPE)
            dh += _product(tiles, weights, _zero(polls), n_tiles, PRECISION)
        else:
            tl.store(p_dq + o_now, tl.zeros([BM, BN], p_dq.dtype.element_ty), mask=within)
        x = stored_x.to(tl.float32)
        q = stored_q.to(tl.float32)
        h = stored_h.to(tl.float32)
        if s == 0:
            q = tl.load(p_product0 + o_state, mask=within, other=0.0).to(tl.float32)
            h = tl.load(p_first + o_state, mask=within, other=0.0)
        if MASKED:
            live = live & (stored_mask != 0)
        dh += stored_dout.to(tl.float32)
        q += bias[None, :]
        i, f = input_and_forget(x, q, GATES)
        candidate = tanh(x) if TANH_CANDIDATE else x
        d = tl.where(live[:, None], dh, 0.0)
        kept = tl.where(live[:, None], 0.0, dh)
        if TANH_STATE:
            new = tanh(i * candidate + f * h)
            d = d * (1.0 - new * new)
        dx, dq = through_gates(d, candidate, h, i, f, GATES)
        dx += d * i * (1.0 - candidate * candidate) if TANH_CANDIDATE else d * i
        tl.store(p_dx + (b * sdx_b + t * sdx_t)[:, None] + o[None, :], dx.to(p_dx.dtype.element_ty), mask=real)
        dq = dq.to(p_dq.dtype.element_ty)
        tl.store(p_dq + o_before, dq, mask=later)
        if s == 0:
            tl.store(p_dq0 + o_state, dq, mask=within)
        dh = kept + d * f
        if PERSISTENT:
            _arrive(p_count)
    tl.store(p_dstate + o_state, dh, mask=within)
