"""All scan units in Triton: one kernel forward and one backward, which take a unit's step and gradient as functions.

A unit has two functions for a block of channels, all values fp32; OPTIONS has bit i set for its option i. They are in
the module `ScanUnit.functions` or, for the units of nmt, below, with the unit's name in front:

    step(x, state, vectors, OPTIONS) -> the state after the step, a tuple as `state`
    gradient(x, state, vectors, d, OPTIONS) -> the gradients of x, of `state` and of the vectors, a tuple each, from the
        state before the step and the gradient d of the state after it

Channels are independent, so a program runs a block of channels of one sentence through time with the state in
registers. All addresses are known in advance: loads are kept in flight by unrolling (`UNROLL`) or by Triton's pipeliner
(`STAGES`), see `Launch`. The states of all steps are kept for the backward kernel, which computes
the gates again; the compiler removes loads that a unit's gradient does not use. The gradients of vectors are summed
over time in registers and over the batch in torch: without atomics, so the bits are the same every time.

Imported only by kernels, because Triton is not installed everywhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.ops.scan import Given, Scan, ScanUnit
from nmt.ops.triton_tools import LOG2_E, gradient_like, mask_bytes, mask_strides, readable, reciprocal, sigmoid, tanh
from nmt.ops.unit import States, Step

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes

UNSPECIALIZED: Final = ["T", "B", "sm_b"]


@triton.jit
def lrn_step(x, state, vectors, OPTIONS: tl.constexpr):
    p, q, r = x
    h = sigmoid(p + state[0]) * r + sigmoid(q - state[0]) * state[0]
    if OPTIONS == 1:
        h = tanh(h)
    return (h,)


@triton.jit
def lrn_gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    p, q, r = x
    h = state[0]
    i = sigmoid(p + h)
    f = sigmoid(q - h)
    g = d[0]
    if OPTIONS == 1:
        y = tanh(i * r + f * h)
        g = g * (1.0 - y * y)
    dp = g * r * i * (1.0 - i)
    dq = g * h * f * (1.0 - f)
    return (dp, dq, g * i), (g * f + dp - dq,), ()


@triton.jit
def olrn_step(x, state, vectors, OPTIONS: tl.constexpr):
    p, q, r, s = x
    c = sigmoid(p + state[0]) * r + sigmoid(q - state[0]) * state[0]
    if OPTIONS == 1:
        c = tanh(c)
    return (sigmoid(s - c) * c,)


@triton.jit
def olrn_gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    p, q, r, s = x
    h = state[0]
    i = sigmoid(p + h)
    f = sigmoid(q - h)
    c = i * r + f * h
    if OPTIONS == 1:
        c = tanh(c)
    o = sigmoid(s - c)
    ds = d[0] * c * o * (1.0 - o)
    g = d[0] * o - ds
    if OPTIONS == 1:
        g = g * (1.0 - c * c)
    dp = g * r * i * (1.0 - i)
    dq = g * h * f * (1.0 - f)
    return (dp, dq, g * i, ds), (g * f + dp - dq,), ()


@triton.jit
def sru_step(x, state, vectors, OPTIONS: tl.constexpr):
    x_r, x_f, x_c, x_h = x
    v_f, v_r = vectors
    c = state[1]
    new = x_c + sigmoid(x_f + v_f * c) * (c - x_c)
    return x_h + sigmoid(x_r + v_r * c) * (new - x_h), new


@triton.jit
def sru_gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    x_r, x_f, x_c, x_h = x
    v_f, v_r = vectors
    c = state[1]
    f = sigmoid(x_f + v_f * c)
    r = sigmoid(x_r + v_r * c)
    new = x_c + f * (c - x_c)
    g = d[1] + d[0] * r
    dr = d[0] * (new - x_h) * r * (1.0 - r)
    df = g * (c - x_c) * f * (1.0 - f)
    dx = dr, df, g * (1.0 - f), d[0] * (1.0 - r)
    return dx, (tl.zeros_like(c), g * f + df * v_f + dr * v_r), (df * c, dr * c)


@triton.jit
def ssru_step(x, state, vectors, OPTIONS: tl.constexpr):
    x_f, x_c = x
    c = x_c + sigmoid(x_f + vectors[0]) * (state[1] - x_c)
    return tl.where(c < 0.0, 0.0, c), c  # NaN stays


@triton.jit
def ssru_gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    x_f, x_c = x
    f = sigmoid(x_f + vectors[0])
    difference = state[1] - x_c
    g = d[1] + tl.where(x_c + f * difference <= 0.0, 0.0, d[0])
    df = g * difference * f * (1.0 - f)
    return (df, g * (1.0 - f)), (tl.zeros_like(f), g * f), (df,)


@triton.jit
def positive_part(x):
    """As `nmt.ops.scan.units.positive_part`."""
    return tl.where(x >= 0.0, x + 0.5, sigmoid(x))


@triton.jit
def positive_slope(x):
    """Its derivative."""
    low = sigmoid(x)
    return tl.where(x >= 0.0, 1.0, low * (1.0 - low))


@triton.jit
def min_gru_step(x, state, vectors, OPTIONS: tl.constexpr):
    g = x[1] + vectors[1]
    if OPTIONS == 1:
        g = positive_part(g)
    return (state[0] + sigmoid(x[0] + vectors[0]) * (g - state[0]),)


@triton.jit
def min_gru_gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    z = sigmoid(x[0] + vectors[0])
    g = x[1] + vectors[1]
    dg = d[0] * z
    if OPTIONS == 1:
        dg = dg * positive_slope(g)
        g = positive_part(g)
    dz = d[0] * (g - state[0]) * z * (1.0 - z)
    return (dz, dg), (d[0] * (1.0 - z),), (dz, dg)


@triton.jit
def powers_of(f, i):
    """e^-m, e^(-f - m) and e^(-i - m), m being the greatest of 0, -f and -i; see min_lstm.c."""
    m = tl.maximum(tl.maximum(-f, -i), 0.0)
    return tl.exp2(m * -LOG2_E), tl.exp2((f + m) * -LOG2_E), tl.exp2((i + m) * -LOG2_E)


@triton.jit
def min_lstm_step(x, state, vectors, OPTIONS: tl.constexpr):
    one, e_f, e_i = powers_of(x[0] + vectors[0], x[1] + vectors[1])
    g = x[2] + vectors[2]
    if OPTIONS == 1:
        g = positive_part(g)
    old = one + e_i
    new = one + e_f
    return ((old * state[0] + new * g) * reciprocal(old + new),)


@triton.jit
def min_lstm_gradient(x, state, vectors, d, OPTIONS: tl.constexpr):
    one, e_f, e_i = powers_of(x[0] + vectors[0], x[1] + vectors[1])
    g = x[2] + vectors[2]
    old = one + e_i
    new = one + e_f
    factor = reciprocal(old + new)
    dg = d[0] * new * factor
    if OPTIONS == 1:
        dg = dg * positive_slope(g)
        g = positive_part(g)
    gate = d[0] * (state[0] - g) * factor * factor
    df = gate * old * e_f
    di = -gate * new * e_i
    return (df, di, dg), (d[0] * old * factor,), (df, di, dg)


@triton.jit
def load_each(p, step, o, inside, COUNT: tl.constexpr):
    """The channels o at p and at each further `step`, as a tuple."""
    found = ()
    for i in tl.static_range(COUNT):
        found = found + (tl.load(p + o + i * step, mask=inside, other=0.0),)
    return found


@triton.jit
def store_each(p, step, o, values, inside, COUNT: tl.constexpr):
    for i in tl.static_range(COUNT):
        tl.store(p + o + i * step, values[i].to(p.dtype.element_ty), mask=inside)


@triton.jit
def as_fp32(values, START: tl.constexpr, COUNT: tl.constexpr):
    """`COUNT` of the values, starting at `START`, in fp32."""
    found = ()
    for i in tl.static_range(COUNT):
        found = found + (values[START + i].to(tl.float32),)
    return found


@triton.jit
def choose_each(condition, values, others, COUNT: tl.constexpr):
    found = ()
    for i in tl.static_range(COUNT):
        found = found + (tl.where(condition, values[i], others[i]),)
    return found


@triton.jit
def add_each(values, others, COUNT: tl.constexpr):
    found = ()
    for i in tl.static_range(COUNT):
        found = found + (values[i] + others[i],)
    return found


@triton.jit(do_not_specialize=UNSPECIALIZED)
def scan_forward_kernel(
    p_x, p_vectors, p_mask, p_first, p_out, p_memory, p_last,
    sx_d, sx_b, sx_t, sm_b, sm_t, s_first, so_d, so_b, so_t, s_memory, s_last,
    B, T, H,
    STEP: tl.constexpr, GRADIENT: tl.constexpr, CELLS: tl.constexpr, INPUTS: tl.constexpr, STATES: tl.constexpr,
    VECTORS: tl.constexpr, OPTIONS: tl.constexpr, KEPT: tl.constexpr, MASKED: tl.constexpr, STARTED: tl.constexpr,
    REVERSE: tl.constexpr, BOTH: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """x [D, B, T, CELLS INPUTS H], vectors [D, CELLS VECTORS, H], mask [B, T], first and last [D, STATES, B, H]; of the
    states of all steps the first `KEPT` tensors: out [D, B, T, H] of h, memory of the others, each of the same layout.

    Grid (blocks * B, D). s counts steps in the order of computation, t is the position in the sentence.
    """
    n_blocks = tl.cdiv(H, BLOCK)
    i_d = tl.program_id(1)
    i_b = (tl.program_id(0) // n_blocks).to(tl.int64)
    o = (tl.program_id(0) % n_blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = o < H
    zero = tl.zeros([BLOCK], tl.int32)
    start = i_d * (T - 1) if BOTH else (T - 1) * REVERSE
    step = 1 - 2 * i_d if BOTH else 1 - 2 * REVERSE
    i_d = i_d.to(tl.int64)
    p_x += i_d * sx_d + i_b * sx_b
    p_out += i_d * so_d + i_b * so_b
    p_memory += i_d * so_d + i_b * so_b
    o_state = i_b * H
    vectors = load_each(p_vectors + i_d * CELLS * VECTORS * H, H, o, inside, CELLS * VECTORS)
    if STARTED:
        state = load_each(p_first + i_d * STATES * s_first + o_state, s_first, o, inside, STATES)
    else:
        state = ()
        for _ in tl.static_range(STATES):
            state = state + (tl.zeros([BLOCK], tl.float32),)
    for s0 in tl.range(0, T, UNROLL, num_stages=STAGES):
        b_x = ()
        b_live = ()
        for j in tl.static_range(UNROLL):
            s = s0 + j
            within = inside if UNROLL == 1 else inside & (zero + s < T)
            b_x = b_x + (load_each(p_x + (start + s * step) * sx_t, H, o, within, CELLS * INPUTS),)
            if MASKED:
                # clamped, because a predicate would cost more than a byte read twice
                b_live = b_live + (tl.load(p_mask + i_b * sm_b + (start + tl.minimum(s, T - 1) * step) * sm_t),)
        for j in tl.static_range(UNROLL):
            s = s0 + j
            new = state
            for c in tl.static_range(CELLS):
                x = as_fp32(b_x[j], c * INPUTS, INPUTS)
                new = STEP(x, new, as_fp32(vectors, c * VECTORS, VECTORS), OPTIONS)
            if MASKED:
                new = choose_each(zero + b_live[j] != 0, new, state, STATES)
            if UNROLL > 1:
                new = choose_each(zero + s < T, new, state, STATES)
            state = new
            within = inside if UNROLL == 1 else inside & (zero + s < T)
            if KEPT > 0:
                h = state[0].to(p_out.dtype.element_ty)
                tl.store(p_out + (start + s * step) * so_t + o, h, mask=within)
            for i in tl.static_range(KEPT - 1):
                kept = state[1 + i].to(p_memory.dtype.element_ty)
                tl.store(p_memory + i * s_memory + (start + s * step) * so_t + o, kept, mask=within)
    store_each(p_last + i_d * STATES * s_last + o_state, s_last, o, state, inside, STATES)


@triton.jit(do_not_specialize=UNSPECIALIZED)
def scan_backward_kernel(
    p_x, p_vectors, p_mask, p_first, p_out, p_memory, p_dout, p_dlast, p_dx, p_dvectors, p_dfirst,
    sx_d, sx_b, sx_t, sm_b, sm_t, s_first, so_d, so_b, so_t, s_memory, sg_d, sg_b, sg_t, s_dstate, sdx_d, sdx_b, sdx_t,
    B, T, H,
    STEP: tl.constexpr, GRADIENT: tl.constexpr, CELLS: tl.constexpr, INPUTS: tl.constexpr, STATES: tl.constexpr,
    VECTORS: tl.constexpr, OPTIONS: tl.constexpr, GIVEN: tl.constexpr, ADDED: tl.constexpr, MASKED: tl.constexpr,
    STARTED: tl.constexpr, REVERSE: tl.constexpr, BOTH: tl.constexpr,
    BLOCK: tl.constexpr, UNROLL: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Gradients of x, of the first state and, for each sentence, of the vectors [D, CELLS VECTORS, B, H], from those of
    the outputs, if `GIVEN`, and of the last state; if `ADDED`, those of the vectors are added to what is there.

    Steps run from T - 1 to 0.
    """
    n_blocks = tl.cdiv(H, BLOCK)
    i_d = tl.program_id(1)
    i_b = (tl.program_id(0) // n_blocks).to(tl.int64)
    o = (tl.program_id(0) % n_blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = o < H
    zero = tl.zeros([BLOCK], tl.int32)
    start = i_d * (T - 1) if BOTH else (T - 1) * REVERSE
    step = 1 - 2 * i_d if BOTH else 1 - 2 * REVERSE
    i_d = i_d.to(tl.int64)
    p_x += i_d * sx_d + i_b * sx_b
    p_dx += i_d * sdx_d + i_b * sdx_b
    p_out += i_d * so_d + i_b * so_b
    p_memory += i_d * so_d + i_b * so_b
    if GIVEN:
        p_dout += i_d * sg_d + i_b * sg_b
    o_state = i_b * H
    zeros = ()
    for _ in tl.static_range(CELLS * VECTORS + STATES):
        zeros = zeros + (tl.zeros([BLOCK], tl.float32),)
    vectors = load_each(p_vectors + i_d * CELLS * VECTORS * H, H, o, inside, CELLS * VECTORS)
    p_dvectors += i_d * CELLS * VECTORS * B * H + o_state
    if ADDED:
        d_vectors = load_each(p_dvectors, B * H, o, inside, CELLS * VECTORS)
    else:
        d_vectors = as_fp32(zeros, 0, CELLS * VECTORS)
    if STARTED:
        first = load_each(p_first + i_d * STATES * s_first + o_state, s_first, o, inside, STATES)
    d_state = load_each(p_dlast + i_d * STATES * s_dstate + o_state, s_dstate, o, inside, STATES)
    for r0 in tl.range(0, T, UNROLL, num_stages=STAGES):
        b_x = ()
        b_before = ()
        b_dout = ()
        b_live = ()
        for j in tl.static_range(UNROLL):
            s = T - 1 - (r0 + j)
            t = start + s * step
            within = inside if UNROLL == 1 else inside & (zero + s >= 0)
            b_x = b_x + (load_each(p_x + t * sx_t, H, o, within, CELLS * INPUTS),)
            o_before = (t - step) * so_t
            later = inside & (zero + s > 0)
            h = load_each(p_out + o_before, 0, o, later, 1)
            b_before = b_before + (h + load_each(p_memory + o_before, s_memory, o, later, STATES - 1),)
            if GIVEN:
                b_dout = b_dout + (tl.load(p_dout + t * sg_t + o, mask=within, other=0.0),)
            if MASKED:
                b_live = b_live + (tl.load(p_mask + i_b * sm_b + (start + tl.maximum(s, 0) * step) * sm_t),)
        for j in tl.static_range(UNROLL):
            s = T - 1 - (r0 + j)
            within = inside if UNROLL == 1 else inside & (zero + s >= 0)
            before = as_fp32(b_before[j], 0, STATES)
            if STARTED:
                before = choose_each(zero + s > 0, before, first, STATES)
            d_after = d_state
            if GIVEN:
                d_after = add_each((b_dout[j].to(tl.float32),), d_state, 1) + as_fp32(d_state, 1, STATES - 1)
            d = d_after
            if MASKED or UNROLL > 1:  # a dead step passes the gradient on to the state before it
                live = zero + b_live[j] != 0 if MASKED else zero + s >= 0
                if MASKED and UNROLL > 1:
                    live = live & (zero + s >= 0)
                d = choose_each(live, d_after, as_fp32(zeros, 0, STATES), STATES)
            between = (before,)
            for c in tl.static_range(CELLS - 1):
                x = as_fp32(b_x[j], c * INPUTS, INPUTS)
                between = between + (STEP(x, between[c], as_fp32(vectors, c * VECTORS, VECTORS), OPTIONS),)
            dx = ()
            dv = ()
            for c in tl.static_range(CELLS - 1, -1, -1):
                x = as_fp32(b_x[j], c * INPUTS, INPUTS)
                dx_c, d, dv_c = GRADIENT(x, between[c], as_fp32(vectors, c * VECTORS, VECTORS), d, OPTIONS)
                dx = dx_c + dx
                dv = dv_c + dv
            store_each(p_dx + (start + s * step) * sdx_t, H, o, dx, within, CELLS * INPUTS)
            d_vectors = add_each(d_vectors, dv, CELLS * VECTORS)
            d_state = d
            if MASKED or UNROLL > 1:
                d_state = choose_each(live, d, d_after, STATES)
    store_each(p_dvectors, B * H, o, d_vectors, inside, CELLS * VECTORS)
    store_each(p_dfirst + i_d * STATES * s_dstate + o_state, s_dstate, o, d_state, inside, STATES)


ENOUGH_PROGRAMS: Final = 1000

DEPTHS: Final = ((512 * 1024, 12), (1280 * 1024, 7))
"""(bytes, depth): depth of the pipeline if all recurrences together load at most this many bytes per step. It is deep
enough to keep at least 3 MiB of loads in flight, the amount that a large GPU transfers during one memory latency, but
not so deep that shared memory allows fewer programs at the same time."""
LEAST_DEPTH: Final = 4


class Launch(NamedTuple):
    """How an elementwise recurrence is split into programs and keeps loads in flight; results do not depend on it."""

    block: int  # Channels of one program, a power of two; a program is one warp.
    unroll: int
    """Time steps whose loads are issued, into registers, before the first of them is computed. This is the order in the
    source; of four steps, the assembler moves the loads of two behind the arithmetic of the first."""
    stages: int  # Depth of Triton's software pipeline, which loads into shared memory; 1: no pipeline.


def launch_rule(channels: int, *, loaded: int) -> Launch:
    """The launch for `channels` recurrences side by side, each of which loads `loaded` bytes per step.

    Derived from latencies and from the generated code, not yet from measurements on a GPU.
    """
    block = 128 if channels >= 128 * ENOUGH_PROGRAMS else 64
    stages = next((stages for most, stages in DEPTHS if channels * loaded <= most), LEAST_DEPTH)
    return Launch(block=block, unroll=1, stages=stages)


def launch_for(x: Tensor, *, hidden: int, backward: bool = False) -> Launch:
    """The launch for x [D, B, T, kH]: `launch_rule` if the pipeline can load x."""
    if x.element_size() < 4 and hidden % 16:  # the pipeline cannot load single values of two bytes
        return Launch(block=64, unroll=3 if backward else 4, stages=1)
    loads = x.size(-1) // hidden + 2 * backward  # plus the state and the gradient of the output
    return launch_rule(x.size(0) * x.size(1) * hidden, loaded=loads * x.element_size())


STEP: Final = Launch(block=128, unroll=1, stages=1)
"""The launch of a single step."""


def unit_constants(unit: ScanUnit) -> dict[str, Any]:
    """The constants of a unit for the kernels."""
    module, prefix = importlib.import_module(unit.functions or __name__), "" if unit.functions else f"{unit.name}_"
    functions = {"STEP": getattr(module, f"{prefix}step"), "GRADIENT": getattr(module, f"{prefix}gradient")}
    sizes = {"INPUTS": unit.inputs // unit.cells, "VECTORS": unit.vectors_each // unit.cells, "STATES": unit.states}
    return functions | {"CELLS": unit.cells, "OPTIONS": unit.code} | sizes


def _run(
    kernel: Any,
    given: Given,
    tensors: Sequence[Tensor | None],
    strides: Sequence[int],
    launch: Launch,
    **constants: Any,
) -> None:
    """Launch a kernel; `tensors` are those that follow the given ones, outputs first and a result in fp32 last, and
    `strides` those that follow the strides of the states."""
    unit, reverse, mask, x, vectors, first = given
    outputs, last = tensors[0], tensors[-1]
    assert outputs is not None
    assert last is not None
    hidden, (directions, batch, length, _) = x.size(-1) // unit.inputs, x.shape
    grid = triton.cdiv(hidden, launch.block) * batch, directions
    with torch.cuda.device_of(x):
        if grid[0]:
            kernel[grid](
                x, last if vectors is None else vectors, mask, first, *tensors,
                *x.stride()[:3], *mask_strides(mask), 0 if first is None else first.stride(1),
                *outputs.stride()[:3], outputs.numel(), *strides, batch, length, hidden,
                MASKED=mask is not None, STARTED=first is not None, REVERSE=int(reverse), BOTH=directions == 2,
                BLOCK=launch.block, UNROLL=launch.unroll, STAGES=launch.stages, num_warps=1,
                **unit_constants(unit), **constants,
            )  # fmt: skip


def _run_backward(
    given: Given, states: Sequence[Tensor], d_outputs: Tensor | None, d_last: Tensor, results: Sequence[Tensor],
    launch: Launch, *, added: bool,
) -> None:  # fmt: skip
    """Launch the backward kernel, which writes `results`: dx, d_vectors [D, V, B, H], to which it adds if `added`, and
    d_first in the layout of d_last. `states` are the outputs and the other states of all steps."""
    given_strides = (0, 0, 0) if d_outputs is None else d_outputs.stride()[:3]
    strides = *given_strides, d_last.stride(1), *results[0].stride()[:3]
    tensors = *states, d_outputs, d_last, *results
    _run(scan_backward_kernel, given, tensors, strides, launch, GIVEN=d_outputs is not None, ADDED=added)


class TritonScan(Scan):
    """A scan unit computed by the Triton kernels."""

    recorded: ClassVar[bool] = True

    @classmethod
    def run_forward(cls, given: Given) -> tuple[Tensor, Tensor, Tensor]:
        given = given._replace(x=readable(given.x), mask=mask_bytes(given.mask))
        unit, x = given.unit, given.x
        directions, batch, length, width = x.shape
        hidden = width // unit.inputs
        outputs = x.new_empty(batch, length, directions, hidden).permute(2, 0, 1, 3)
        kind = torch.float32 if unit.wide_memory else x.dtype
        memory = x.new_empty(unit.states - 1, batch, length, directions, hidden, dtype=kind)
        last = x.new_empty(directions, unit.states, batch, hidden, dtype=torch.float32)
        tensors, launch = (outputs, memory, last), launch_for(x, hidden=hidden)
        _run(scan_forward_kernel, given, tensors, [last.stride(1)], launch, KEPT=unit.states)
        return outputs, last, memory

    @classmethod
    def run_backward(
        cls, given: Given, outputs: Tensor, kept: Tensor, d_outputs: Tensor | None, d_last: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        dx, d_first = gradient_like(given.x), torch.empty_like(d_last)
        given = given._replace(x=readable(given.x), mask=mask_bytes(given.mask))
        directions, batch, _, hidden = outputs.shape
        d_vectors = d_last.new_empty(directions, given.unit.vectors_each, batch, hidden)
        d_outputs = None if d_outputs is None else readable(d_outputs)
        results, launch = (dx, d_vectors, d_first), launch_for(given.x, hidden=hidden, backward=True)
        _run_backward(given, (outputs, kept), d_outputs, d_last, results, launch, added=False)
        return results

    def _step(self, x: Tensor, before: States, mask: Tensor | None) -> Given:
        return Given(self.unit, False, mask, x[None], self.vectors, before.parts.transpose(0, 1))

    def forward(self, step: Step) -> None:
        _, x, before, after, mask = step
        tensors = after.operand.unsqueeze(2), after.operand, after.parts.transpose(0, 1)
        kept = int(after.operand.data_ptr() != after.parts.data_ptr())
        _run(scan_forward_kernel, self._step(x, before, mask), tensors, [tensors[2].stride(1)], STEP, KEPT=kept)

    def backward(
        self, step: Step, gradient: Tensor, *, pending: Tensor | None, d_output: Tensor | None, dx: Tensor
    ) -> None:
        _, x, before, after, mask = step
        if pending is not None:
            gradient[0] += pending
        given, states = self._step(x, before, mask), (before.operand.unsqueeze(2), before.operand)
        d_output, results = None if d_output is None else d_output[None], (dx[None], self.d_vectors, gradient[None])
        _run_backward(given, states, d_output, gradient[None], results, STEP, added=True)
