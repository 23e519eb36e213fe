"""The Triton kernels of ATR: all steps in one launch or, from the same source, one step or half a step per launch.

A program owns BM sentences and BN channels. Its BN rows of the recurrent matrix stay on chip for the whole sequence,
and its state in registers. All programs of the same sentences need each other's states, and with layer norm each
other's sums: they exchange them through global memory and wait for each other at a counter in global memory, once per
step, with layer norm twice (`PERSISTENT`). Therefore all of them must run at the same time (a cooperative launch).
Without `PERSISTENT` the ends of launches are the barriers: with layer norm, a first launch of a step writes its sums
(`SUMS`), and a second launch computes the rest (`REST`). Both ways give the same bits, which tests compare.

States [D, B, T + 2, H] have one more place at each end: the state after time step t is at place t + 1, and the initial
state is at place 0 or, if the sequence runs backward, at place T + 1.
"""

from __future__ import annotations

from typing import Final

import triton
import triton.language as tl

from nmt.ops.atr.step_kernels import new_state, through_state
from nmt.ops.triton_tools import inverse_deviation

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803, N806 - inside kernels constants are in capitals, and sizes as in their shapes

COUNTER: Final = tl.constexpr(32)
"""Distance of counters in int32: each counter has its own 128-byte cache line."""

MOST_POLLS: Final = tl.constexpr(4_000_000)
"""After some seconds of waiting in all steps together, a program continues with NaN, so that a bug is visible and the
GPU does not hang."""


@triton.jit
def _arrive(p_count):
    tl.debug_barrier()  # the stores of all threads come before the release by the thread that counts
    tl.atomic_add(p_count, 1, sem="release", scope="gpu")


@triton.jit
def _wait(p_count, target, polls):
    """Wait for the counter; return how often this wait and all earlier ones have polled."""
    # The polled value must come from the acquire itself: Triton 3.6 drops an atomic whose result is unused.
    while (tl.atomic_add(p_count, 0, sem="acquire", scope="gpu") < target) & (polls < MOST_POLLS):
        polls += 1
    tl.debug_barrier()
    return polls


@triton.jit
def _zero(polls):
    """The initial value of sums: 0, or NaN after a wait that failed."""
    return tl.where(polls < MOST_POLLS, 0.0, float("nan"))


@triton.jit
def _own(T, row_from, row_to, REVERSE: tl.constexpr, H: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """This program's group of programs with the same sentences and its number in the group; its direction, its
    sentences, which of them are real, its channels; the first time step and the step to the next."""
    n_blocks: tl.constexpr = (H + BN - 1) // BN
    n_groups = tl.cdiv(row_to - row_from, BM)
    i_group = tl.program_id(0) // n_blocks
    i_block = tl.program_id(0) % n_blocks
    i_d = i_group // n_groups
    backward = i_d + REVERSE
    b = row_from + (i_group % n_groups) * BM + tl.arange(0, BM)
    o = i_block * BN + tl.arange(0, BN)
    return i_group, i_block, i_d.to(tl.int64), b.to(tl.int64), b < row_to, o, backward * (T - 1), 1 - 2 * backward


@triton.jit
def _weights(p, o_out, S_OUT: tl.constexpr, S_IN: tl.constexpr, H: tl.constexpr, KC: tl.constexpr, EVEN: tl.constexpr):
    """Tiles [KC, BN] of the matrix, for the output channels of this program."""
    tiles = ()
    for k in tl.static_range((H + KC - 1) // KC):
        o_in = k * KC + tl.arange(0, KC)
        within = None if EVEN else (o_out[None, :] < H) & (o_in[:, None] < H)
        other = None if EVEN else 0.0
        tiles = tiles + (tl.load(p + o_out[None, :] * S_OUT + o_in[:, None] * S_IN, mask=within, other=other),)
    return tiles


@triton.jit
def _rows(p, o_rows, rows, H: tl.constexpr, KC: tl.constexpr, EVEN: tl.constexpr, DTYPE: tl.constexpr):
    """Whole rows of H as tiles [BM, KC]; all of them are requested before the first is used.

    Other multiprocessors have written them: `.cg` avoids reading a stale line of the L1 cache.
    """
    tiles = ()
    for k in tl.static_range((H + KC - 1) // KC):
        o = k * KC + tl.arange(0, KC)
        within = rows[:, None] if EVEN else rows[:, None] & (o[None, :] < H)
        tile = tl.load(p + o_rows[:, None] + o[None, :], mask=within, other=0.0, cache_modifier=".cg")
        tiles = tiles + (tile.to(DTYPE),)
    return tiles


@triton.jit
def _product(tiles, weights, zero, N: tl.constexpr, PRECISION: tl.constexpr):
    """The sum of N products of tiles, each with its own accumulator: N short chains instead of one long chain.

    The compiler must not know that `zero` is 0, otherwise it merges them into one chain.
    """
    first = tl.zeros([tiles[0].shape[0], weights[0].shape[1]], tl.float32) + zero
    parts = ()
    for i in tl.static_range(N):
        parts = parts + (tl.dot(tiles[i], weights[i], first, input_precision=PRECISION),)
    total = parts[0]  # type: ignore[misc]
    for i in tl.static_range(N - 1):
        total = total + parts[i + 1]
    return total


@triton.jit
def _put_sums(p, i_block, first, second, rows, N: tl.constexpr):
    """Store two sums over this program's channels for each row [BM]; p [BM]: places for the 2N sums of N programs."""
    tl.store(p + i_block, first, mask=rows)
    tl.store(p + N + i_block, second, mask=rows)


@triton.jit
def _all_sums(p, rows, N: tl.constexpr):
    """The sums of all programs, two tensors [BM, N or more], zero beyond N; read in the same way as in `_rows`."""
    k = tl.arange(0, triton.next_power_of_2(N))
    within = rows[:, None] & (k < N)[None, :]
    first = tl.load(p[:, None] + k[None, :], mask=within, other=0.0, cache_modifier=".cg")
    return first, tl.load(p[:, None] + N + k[None, :], mask=within, other=0.0, cache_modifier=".cg")


@triton.jit(do_not_specialize=["sm_b", "B", "T", "row_from", "row_to", "step_from", "step_to"])
def atr_forward_kernel(
    p_x, p_weight, p_bias, p_scale, p_mask, p_state, p_states, p_sums, p_count,
    sx_d, sx_b, sx_t, sm_b, sm_t, B, T, row_from, row_to, step_from, step_to,
    H: tl.constexpr, GATES: tl.constexpr, TANH_CANDIDATE: tl.constexpr, TANH_STATE: tl.constexpr,
    MASKED: tl.constexpr, REVERSE: tl.constexpr, NORMALIZED: tl.constexpr, SUMS: tl.constexpr, REST: tl.constexpr,
    PERSISTENT: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, KC: tl.constexpr,
):  # fmt: skip
    """Steps step_from .. step_to of sentences row_from .. row_to; s counts steps in the order of computation.

    x [D, B, T, H]; states as described at the top; weight [D, H, H] by rows, or fp32 by columns; bias, scale
    [D, H]; mask [B, T]; state fp32 [D, B, H], first the state before step_from, finally the state after the last step;
    sums fp32 [D, B, T, 2, programs], with layer norm: the mean of each program's channels, and the sum of their squared
    distances to it.
    """
    EVEN: tl.constexpr = H % BN == 0 and H % KC == 0
    DTYPE: tl.constexpr = p_weight.dtype.element_ty
    COLUMNS: tl.constexpr = DTYPE.primitive_bitwidth > 16
    N: tl.constexpr = (H + BN - 1) // BN
    WAITS: tl.constexpr = 2 if NORMALIZED else 1
    i_group, i_block, i_d, b, rows, o, t_first, t_step = _own(T, row_from, row_to, REVERSE, H, BM, BN)
    within = rows[:, None] if EVEN else rows[:, None] & (o[None, :] < H)
    p_count += i_group * COUNTER
    p_x += i_d * sx_d
    i_row = i_d * B + b
    i_states = i_row * (T + 2) + 1  # the place of the state after time step 0
    weights = _weights(p_weight + i_d * H * H, o, 1 if COLUMNS else H, H if COLUMNS else 1, H, KC, EVEN)
    bias = tl.load(p_bias + i_d * H + o, mask=o < H, other=0.0)
    if NORMALIZED:
        scale = tl.load(p_scale + i_d * H + o, mask=o < H, other=0.0)
        p_sums += i_row * T * 2 * N
        blocks = tl.arange(0, triton.next_power_of_2(N))
        counts = tl.maximum(tl.minimum(BN, H - blocks * BN), 0).to(tl.float32)
        own = tl.minimum(BN, H - i_block * BN).to(tl.float32)
    p_state += (i_row * H)[:, None] + o[None, :]
    h = tl.load(p_state, mask=within, other=0.0)
    polls = tl.minimum(step_from, 0)  # 0, but the compiler does not know it
    for s in range(step_from, step_to):
        t = t_first + s * t_step
        # Loaded before the wait and used only after the product: a conversion here would delay both.
        stored_x = tl.load(p_x + (b * sx_b + t * sx_t)[:, None] + o[None, :], mask=within, other=0.0)
        if MASKED:
            stored_mask = tl.load(p_mask + b * sm_b + t * sm_t, mask=rows, other=0)
        if PERSISTENT and s > step_from:
            polls = _wait(p_count, (s - step_from) * WAITS * N, polls)
        tiles = _rows(p_states, (i_states + t - t_step) * H, rows, H, KC, EVEN, DTYPE)
        q = _product(tiles, weights, _zero(polls), (H + KC - 1) // KC, PRECISION)
        if NORMALIZED:
            if SUMS:
                mean = tl.sum(q, 1) / own
                apart = q - mean[:, None] if EVEN else tl.where(o[None, :] < H, q - mean[:, None], 0.0)
                _put_sums(p_sums + t * 2 * N, i_block, mean, tl.sum(apart * apart, 1), rows, N)
            if PERSISTENT:
                _arrive(p_count)
                polls = _wait(p_count, ((s - step_from) * WAITS + 1) * N, polls)
            if REST:
                means, squares = _all_sums(p_sums + t * 2 * N, rows, N)
                mean = tl.sum(means * counts[None, :], 1) / H + _zero(polls)
                apart = means - mean[:, None]
                factor = inverse_deviation(tl.sum(squares + apart * apart * counts[None, :], 1), H)
                q = (q - mean[:, None]) * factor[:, None] * scale[None, :]
        if REST:
            x = stored_x.to(tl.float32)
            new, _, _, _ = new_state(x, q + bias[None, :], h, GATES, TANH_CANDIDATE, TANH_STATE)
            h = tl.where((stored_mask != 0)[:, None], new, h) if MASKED else new
            p = p_states + ((i_states + t) * H)[:, None] + o[None, :]
            tl.store(p, h.to(p_states.dtype.element_ty), mask=within)
        if PERSISTENT:
            _arrive(p_count)
    if REST:
        tl.store(p_state, h, mask=within)


@triton.jit(do_not_specialize=["sm_b", "B", "T", "row_from", "row_to", "step_from", "step_to"])
def atr_backward_kernel(
    p_x, p_product, p_factor, p_weight, p_bias, p_scale, p_mask, p_states, p_dout, p_dstate, p_dx, p_dq, p_du, p_sums,
    p_count, sx_d, sx_b, sx_t, sm_b, sm_t, sg_d, sg_b, sg_t, sdx_d, sdx_b, sdx_t,
    B, T, row_from, row_to, step_from, step_to,
    H: tl.constexpr, GATES: tl.constexpr, TANH_CANDIDATE: tl.constexpr, TANH_STATE: tl.constexpr,
    MASKED: tl.constexpr, REVERSE: tl.constexpr, NORMALIZED: tl.constexpr, SUMS: tl.constexpr, REST: tl.constexpr,
    PERSISTENT: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, KC: tl.constexpr,
):  # fmt: skip
    """Gradients, from the last step to the first; n counts from 0.

    product, du and, with layer norm, dq are laid out like the states: values of a product are at the place of the state
    that was multiplied; du is zero at the place of the last state. With layer norm, product is the normalised product
    in fp32, factor fp32 [D, B, T + 2] its factor, dq the gradient after layer norm and du the gradient before it; sums
    are the sums of dq * scale and of dq * scale * product. dstate fp32 [D, B, H] is the gradient of the state, as input
    and output; the gradient of the first state through its product is left to the caller.
    """
    EVEN: tl.constexpr = H % BN == 0 and H % KC == 0
    DTYPE: tl.constexpr = p_weight.dtype.element_ty
    N: tl.constexpr = (H + BN - 1) // BN
    WAITS: tl.constexpr = 2 if NORMALIZED else 1
    i_group, i_block, i_d, b, rows, o, t_first, t_step = _own(T, row_from, row_to, REVERSE, H, BM, BN)
    within = rows[:, None] if EVEN else rows[:, None] & (o[None, :] < H)
    p_count += i_group * COUNTER
    p_x += i_d * sx_d
    p_dx += i_d * sdx_d
    p_dout += i_d * sg_d
    i_row = i_d * B + b
    i_states = i_row * (T + 2) + 1
    weights = _weights(p_weight + i_d * H * H, o, 1, H, H, KC, EVEN)
    bias = tl.load(p_bias + i_d * H + o, mask=o < H, other=0.0)
    if NORMALIZED:
        scale = tl.load(p_scale + i_d * H + o, mask=o < H, other=0.0)
        p_sums += i_row * T * 2 * N
    p_dstate += (i_row * H)[:, None] + o[None, :]
    dh = tl.load(p_dstate, mask=within, other=0.0)
    polls = tl.minimum(step_from, 0)
    for n in range(step_from, step_to):
        t = t_first + (T - 1 - n) * t_step
        i_before = i_states + t - t_step
        o_before = (i_before * H)[:, None] + o[None, :]
        stored_x = tl.load(p_x + (b * sx_b + t * sx_t)[:, None] + o[None, :], mask=within, other=0.0)
        stored_dout = tl.load(p_dout + (b * sg_b + t * sg_t)[:, None] + o[None, :], mask=within, other=0.0)
        stored_product = tl.load(p_product + o_before, mask=within, other=0.0)
        stored_h = tl.load(p_states + o_before, mask=within, other=0.0)
        if MASKED:
            stored_mask = tl.load(p_mask + b * sm_b + t * sm_t, mask=rows, other=0)
        if NORMALIZED:
            factor = tl.load(p_factor + i_before, mask=rows, other=0.0)
        if PERSISTENT and n > step_from:
            polls = _wait(p_count, (n - step_from) * WAITS * N, polls)
        tiles = _rows(p_du, (i_states + t) * H, rows, H, KC, EVEN, DTYPE)
        dh += _product(tiles, weights, _zero(polls), (H + KC - 1) // KC, PRECISION)
        x = stored_x.to(tl.float32)
        h = stored_h.to(tl.float32)
        u = stored_product.to(tl.float32)
        dh += stored_dout.to(tl.float32)
        d = tl.where((stored_mask != 0)[:, None], dh, 0.0) if MASKED else dh
        q = (u * scale[None, :] if NORMALIZED else u) + bias[None, :]
        dx, du, d_before = through_state(d, x, q, h, GATES, TANH_CANDIDATE, TANH_STATE)
        if SUMS:
            tl.store(p_dx + (b * sdx_b + t * sdx_t)[:, None] + o[None, :], dx.to(p_dx.dtype.element_ty), mask=within)
        if NORMALIZED:
            if SUMS:
                tl.store(p_dq + o_before, du.to(p_dq.dtype.element_ty), mask=within)
            du = du * scale[None, :]
            if SUMS:
                _put_sums(p_sums + t * 2 * N, i_block, tl.sum(du, 1), tl.sum(du * u, 1), rows, N)
            if PERSISTENT:
                _arrive(p_count)
                polls = _wait(p_count, ((n - step_from) * WAITS + 1) * N, polls)
            if REST:
                sums, slopes = _all_sums(p_sums + t * 2 * N, rows, N)
                mean = tl.sum(sums, 1) / H + _zero(polls)
                slope = tl.sum(slopes, 1) / H
                du = factor[:, None] * (du - mean[:, None] - u * slope[:, None])
        if REST:
            tl.store(p_du + o_before, du.to(p_du.dtype.element_ty), mask=within)
        dh = tl.where((stored_mask != 0)[:, None], d_before, dh) if MASKED else d_before
        if PERSISTENT:
            _arrive(p_count)
    if REST:
        tl.store(p_dstate, dh, mask=within)
