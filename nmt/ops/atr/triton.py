"""ATR in Triton: single steps, and whole sequences whose programs fit on the GPU.

A step is one product and one kernel, forward and backward; layer norm needs whole rows, so a program has one row, and
u [B, H] has no bias.

For whole sequences all steps are one launch or, from the same source, one step or half a step per launch. A program
owns BM sentences and BN channels. Its BN rows of the recurrent matrix stay on chip for the whole sequence,
and its state in registers. All programs of the same sentences need each other's states, and with layer norm each
other's sums: they exchange them through global memory and wait for each other at a counter in global memory, once per
step, with layer norm twice (`PERSISTENT`). Therefore all of them must run at the same time (a cooperative launch).
Without `PERSISTENT` the ends of launches are the barriers: with layer norm, a first launch of a step writes its sums
(`SUMS`), and a second launch computes the rest (`REST`). Both ways give the same bits, which tests compare.

States [D, B, T + 2, H] have one more place at each end: the state after time step t is at place t + 1, and the initial
state is at place 0 or, if the sequence runs backward, at place T + 1.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from triton.runtime import driver

from nmt.ops.atr import ATR
from nmt.ops.recurrence import EPSILON, State, product_type
from nmt.ops.triton_rows import RowKernel, load_gradient, load_live, load_product, store_rows, sums, through_norm
from nmt.ops.triton_tools import (
    gradient_like,
    inverse_deviation,
    load_row,
    mask_bytes,
    mask_strides,
    readable,
    sigmoid,
    store_row,
    tanh,
)
from nmt.ops.unit import Step, Unit, rows_of

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803, N806 - inside kernels constants are in capitals, and sizes as in their shapes


def gate_constants(unit: ATR) -> dict[str, Any]:
    """The constants of `new_state` and `through_state`."""
    activation = unit.activation
    return {"GATES": unit.gates, "TANH_CANDIDATE": activation == "candidate", "TANH_STATE": activation == "state"}


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


FP32_PRODUCTS: Final = "ieee"
"""Products of fp32 are exact: on tensor cores (tf32, tf32x3) the kernels run out of registers."""

MOST_LAUNCHES: Final = 4
"""If the programs of a batch do not all fit on the GPU, at most this many persistent launches share the batch."""

STAGES: Final = 1
"""Without Triton's pipeliner, which ignores barriers and would load states before they are written."""

REGISTERS: Final = 255
"""Most registers of a thread: with the 65536 registers of a multiprocessor, enough for two programs of four warps, or
one of eight. Without this limit the assembler would use fewer, for more programs than exist, and spill."""


class Tiles(NamedTuple):
    """How a batch is split into programs, and whether one launch runs all steps."""

    rows: int  # Sentences of a program.
    columns: int  # Channels of a program.
    depth: int  # Channels multiplied at once. All three are powers of two and at least 16.
    warps: int
    persistent: bool


class Launch(NamedTuple):
    """One launch of a kernel."""

    rows: tuple[int, int]
    steps: tuple[int, int]
    sums: bool = True  # Whether it writes the sums that layer norm needs.
    rest: bool = True  # Whether it computes the rest of the step, after the sums.


def tile_rule(weight: Tensor, *, batch: int) -> Tiles:
    """The tiles for weight [D, H, H] and `batch` sentences; see docs/benchmarks/gpu.md."""
    hidden = weight.size(-1)
    if weight.element_size() > 2:
        tiles = Tiles(rows=16, columns=16, depth=32, warps=8, persistent=False)
    else:
        tiles = Tiles(rows=16, columns=32, depth=64 if triton.cdiv(hidden, 64) % 2 else 128, warps=4, persistent=False)
    if not weight.is_cuda:
        return tiles
    resident = programs_resident(hidden, tiles, weight=weight)
    groups = triton.cdiv(triton.cdiv(batch, tiles.rows), MOST_LAUNCHES)
    fits = weight.size(0) * groups * triton.cdiv(hidden, tiles.columns) <= resident
    return tiles._replace(persistent=fits)


def programs_resident(hidden: int, tiles: Tiles, *, weight: Tensor) -> int:
    """How many programs run at the same time on the GPU of `weight`."""
    multiprocessors, shared = _device_limits(weight.get_device())
    return multiprocessors * programs_each(hidden, tiles, shared=shared, element_size=weight.element_size())


def programs_each(hidden: int, tiles: Tiles, *, shared: int, element_size: int) -> int:
    """How many programs run on a multiprocessor that gives a program at most `shared` bytes; at most two.

    It has 65536 registers, enough for two programs of four warps, whose threads can have 255 at most. Whether programs
    of eight warps use more than half of the registers depends on the version of Triton.
    """
    most, width = 2 if tiles.warps <= 4 else 1, triton.cdiv(hidden, tiles.depth) * tiles.depth
    needed = width * (tiles.columns + tiles.rows) * element_size + 2048  # its rows of the matrix, and the states
    return min(most, (shared + 1024) // needed)


@functools.cache
def _device_limits(device: int) -> tuple[int, int]:
    """Multiprocessors of a GPU, and bytes of shared memory that a program can have."""
    properties = driver.active.utils.get_device_properties(device)
    return properties["multiprocessor_count"], properties["max_shared_mem"]


def fits_on_chip(weight: Tensor, *, batch: int) -> bool:
    """Whether the programs that keep the parts of weight [D, H, H] on chip can run together, in a few launches."""
    return not weight.is_cuda or tile_rule(weight, batch=batch).persistent


def launches(batch: int, steps: int, tiles: Tiles, *, weight: Tensor, normalized: bool) -> Iterator[Launch]:
    """Split `steps` steps of `batch` sentences into launches."""
    if not tiles.persistent:
        for step in range(steps):
            whole = Launch((0, batch), (step, step + 1))
            yield from [whole._replace(rest=False), whole._replace(sums=False)] if normalized else [whole]
        return
    rows = batch
    if weight.is_cuda:
        group = weight.size(0) * triton.cdiv(weight.size(-1), tiles.columns)
        rows = tiles.rows * max(1, programs_resident(weight.size(-1), tiles, weight=weight) // group)
    yield from (Launch((row, min(row + rows, batch)), (0, steps)) for row in range(0, batch, rows))


class Design(NamedTuple):
    """What the kernels are compiled for, and how work is split, besides their tensors."""

    unit: ATR
    reverse: bool
    tiles: Tiles | None

    def first_places(self, directions: int) -> list[int]:
        """Where the first state of each direction stands among its states [B, T + 2, H]."""
        return [-1 if self.reverse or d == 1 else 0 for d in range(directions)]


def run(
    kernel: Any, x: Tensor, tensors: Sequence[Tensor | None], strides: Sequence[int], design: Design,
    *, weight: Tensor, scale: Tensor | None, mask: Tensor | None,
) -> None:  # fmt: skip
    """Launch `kernel` for all sentences and steps of x [D, B, T, H]; `tensors` are all except the exchanged ones."""
    directions, batch, length, hidden = x.shape
    tiles = design.tiles or tile_rule(weight, batch=batch)
    blocks = triton.cdiv(hidden, tiles.columns)
    options = {
        "H": hidden, **gate_constants(design.unit), "MASKED": mask is not None, "REVERSE": int(design.reverse),
        "NORMALIZED": scale is not None, "PERSISTENT": tiles.persistent, "PRECISION": FP32_PRODUCTS,
        "BM": tiles.rows, "BN": tiles.columns, "KC": tiles.depth, "num_warps": tiles.warps, "num_stages": STAGES,
        "maxnreg": REGISTERS,
    }  # fmt: skip
    if tiles.persistent and weight.is_cuda:
        # A cooperative launch fails, instead of hanging, if its programs cannot all run at the same time.
        options["launch_cooperative_grid"] = True
    sums = None if scale is None else scale.new_empty(directions, batch, length, 2, blocks)
    counters = None
    for launch in launches(batch, length, tiles, weight=weight, normalized=scale is not None):
        first, last = launch.rows
        groups = directions * triton.cdiv(last - first, tiles.rows)
        if tiles.persistent or counters is None:  # each persistent launch counts from zero, others do not count
            counters = torch.zeros(groups * COUNTER.value, dtype=torch.int32, device=weight.device)
        with torch.cuda.device_of(weight):
            kernel[(groups * blocks,)](
                *tensors, sums, counters, *strides, batch, length, first, last, *launch.steps,
                SUMS=launch.sums, REST=launch.rest, **options,
            )  # fmt: skip


class ATRSequence(torch.autograd.Function):
    """h after each step [D, B, T, H] in the type of x, and the last h fp32 [D, B, H]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, scale: Tensor | None, first: Tensor | None,
        mask: Tensor | None, design: Design,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """x [D, B, T, H]; weight [D, H, H] in the type of the products; bias [D, H], the sum of all biases; scale
        [D, H], or None without layer norm; first [D, B, H], or None for zeros, all in fp32; mask [B, T] or None."""
        x, weight, mask = readable(x), weight.contiguous(), mask_bytes(mask)
        directions, batch, length, hidden = x.shape
        states = x.new_empty(directions, batch, length + 2, hidden)
        states[:, :, :: length + 1] = 0
        state = x.new_zeros(directions, batch, hidden, dtype=torch.float32) if first is None else first.clone()
        for d, place in enumerate(design.first_places(directions)):
            states[d, :, place] = state[d]
        # Tiles keep their order in shared memory. For tensor cores Triton swizzles them, so any order works. In fp32,
        # threads read different columns: in a row-wise tile they would access the same banks.
        loaded = weight.mT.contiguous() if weight.element_size() > 2 else weight
        run(
            atr_forward_kernel, x, (x, loaded, bias, scale, mask, state, states),
            (*x.stride()[:3], *mask_strides(mask)), design, weight=weight, scale=scale, mask=mask,
        )  # fmt: skip
        ctx.design = design
        ctx.save_for_backward(x, weight, bias, scale, mask, states)
        ctx.set_materialize_grads(False)
        return states[:, :, 1:-1], state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor | None, d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        """One GEMM before the loop recomputes the products of all states; one after it is the weight's gradient."""
        x, weight, bias, scale, mask, states = ctx.saved_tensors
        d_outputs, dx = torch.zeros_like(x) if d_outputs is None else readable(d_outputs), gradient_like(x)
        d_state = x.new_zeros(x[:, :, 0].shape, dtype=torch.float32) if d_last is None else d_last.clone()
        with torch.autocast(x.device.type, enabled=False):
            operand = states.flatten(1, 2).to(weight.dtype)  # [D, B * (T + 2), H]
            product, factor = torch.bmm(operand, weight.mT), None
            du = dq = torch.zeros_like(product)
            if scale is not None:
                du = torch.zeros_like(product)
                product, _, factor = torch.native_layer_norm(product.float(), product.shape[-1:], None, None, EPSILON)
            run(
                atr_backward_kernel, x,
                (x, product, factor, weight, bias, scale, mask, states, d_outputs, d_state, dx, dq, du),
                (*x.stride()[:3], *mask_strides(mask), *d_outputs.stride()[:3], *dx.stride()[:3]),
                ctx.design, weight=weight, scale=scale, mask=mask,
            )  # fmt: skip
            if ctx.needs_input_grad[4]:
                places = enumerate(ctx.design.first_places(len(weight)))
                d_state += torch.bmm(torch.stack([du.view(states.shape)[d, :, place] for d, place in places]), weight)
            d_weight = torch.bmm(du.mT, operand)
        d_scale = None if scale is None else (product * dq).sum(1)
        d_first = d_state if ctx.needs_input_grad[4] else None
        return dx, d_weight, dq.sum(1, dtype=torch.float32), d_scale, d_first, None, None


class ATRKernel(RowKernel):
    """ATR in Triton; saves its product; writes the gradients of the product before and after layer norm."""

    saved_widths = (1,)
    written_widths = (1, 1)
    norm_widths = ((1,),)

    unit: ATR

    @classmethod
    def whole(
        cls, units: Sequence[Unit], x: Tensor, state: Sequence[State] | None, mask: Tensor | None, *, reverse: bool,
        tiles: Tiles | None = None,
    ) -> tuple[Tensor, Tensor] | None:  # fmt: skip
        """See `nmt.ops.unit.Kernel.whole`; `tiles` overrides `tile_rule`. The tanh of activation "output" is not
        applied.

        None if x is empty, and if matrix or batch are too large for a few persistent launches: then single steps run,
        which are one CUDA graph, while Python would launch each step of these kernels separately. Under autocast
        products are computed in its type, as in the reference.
        """
        parts = zip(*(unit.weights for unit in units), strict=True)
        weight, bias, *norm = (torch.stack(part) if len(part) > 1 else part[0].unsqueeze(0) for part in parts)
        weight, scale, bias = weight.to(product_type(weight)), None, bias.float()
        if not x.numel() or not (tiles or fits_on_chip(weight, batch=x.size(1))):
            return None
        if norm:
            scale, bias = norm[0].float(), bias + norm[1].float()
        first = None if state is None else torch.stack([h.float() for (h,) in state])
        design = Design(cast("ATR", units[0].design), reverse, tiles)
        outputs, last = ATRSequence.apply(x, weight, bias, scale, first, mask, design)
        return outputs, last.unsqueeze(1)

    @functools.cached_property
    def launch(self) -> dict[str, Any]:
        return super().launch | gate_constants(self.unit)

    def forward(self, step: Step) -> None:
        t, x, before, after, mask = step
        product, (mask, sm_b) = self.saved[0][t], rows_of(mask)
        self.matrices[0].forward(before.operand[0], out=product)
        atr_step_forward_kernel[(self.sizes.batch,)](
            x, product, *self.parameters[0], before.parts, mask, after.parts, after.operand,
            x.stride(0), sm_b, self.sizes.hidden, MASKED=mask is not None, **self.launch,
        )  # fmt: skip

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> Tensor:
        t, x, before, after, mask = step
        (d_product, d_sum), (mask, sm_b), (d_output, so_b) = (
            [written[t] for written in self.written], rows_of(mask), rows_of(d_output)
        )  # fmt: skip
        atr_step_backward_kernel[(self.sizes.batch,)](
            x, self.saved[0][t], *self.parameters[0], before.parts, mask, pending, d_output, gradient,
            dx, d_sum, d_product, x.stride(0), sm_b, so_b, dx.stride(0), self.sizes.hidden,
            MASKED=mask is not None, PENDING=pending is not None, ADDED=d_output is not None, **self.launch,
        )  # fmt: skip
        return self.through(0, d_product)

    def sums(self, dx: Tensor) -> Sequence[Tensor]:
        return self.written[1:]
