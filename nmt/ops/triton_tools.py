"""Common parts of the Triton kernels: gate functions, the rule for block and prefetch, the form of tensor arguments.

Imported only by kernels, because Triton is not installed everywhere.
"""
# ruff: noqa: N803 - inside kernels sizes are written as in their shapes

from __future__ import annotations

import os
from typing import Final, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

# A product and a sum as one instruction: Triton 3.9 warns that 3.10 will do this only on request.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

LOG2_E: Final = tl.constexpr(1.4426950408889634)

INTERPRETED: Final = tl.constexpr(triton.knobs.runtime.interpret)
"""Whether Triton's interpreter runs, which does not support GPU instructions."""

ENOUGH_PROGRAMS: Final = 1000

DEPTHS: Final = ((512 * 1024, 12), (1280 * 1024, 7))
"""(bytes, depth): depth of the pipeline if all recurrences together load at most this many bytes per step. It is deep
enough to keep at least 3 MiB of loads in flight, the amount that a large GPU transfers during one memory latency, but
not so deep that shared memory allows fewer programs at the same time."""
LEAST_DEPTH: Final = 4


@triton.jit
def reciprocal(x):  # type: ignore[no-untyped-def]
    """1 / x for x >= 1, in one instruction; Triton's division has four more, for x that a GPU would flush to zero."""
    if INTERPRETED:
        return 1.0 / x
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def sigmoid(x):  # type: ignore[no-untyped-def]
    return reciprocal(1.0 + tl.exp2(x * -LOG2_E))


@triton.jit
def tanh(x):  # type: ignore[no-untyped-def]
    return 2.0 * sigmoid(2.0 * x) - 1.0


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


def _reachable(x: Tensor) -> bool:
    """Whether kernels can address x [D, B, T, W]: channels side by side, one sentence within 32-bit offsets."""
    return x.stride(-1) == 1 and x.size(2) * x.stride(2) < 2**31


def readable(x: Tensor) -> Tensor:
    """x [D, B, T, W] itself if a kernel can read it, else a contiguous copy."""
    return x if _reachable(x) else x.contiguous()


def gradient_like(x: Tensor) -> Tensor:
    """Memory for the gradient of x [D, B, T, W] in its layout, or contiguous if kernels cannot write this layout."""
    gradient = torch.empty_like(x)
    return gradient if _reachable(gradient) else x.new_empty(x.shape)


def mask_bytes(mask: Tensor | None) -> Tensor | None:
    """A mask in the form that kernels read, uint8; a bool mask is not copied."""
    return None if mask is None else mask.bool().view(torch.uint8)


def mask_strides(mask: Tensor | None) -> tuple[int, int]:
    return (0, 0) if mask is None else (mask.stride(0), mask.stride(1))


@triton.jit
def load_row(p, o, H):  # type: ignore[no-untyped-def]
    """The H values that start at p, in fp32; zero at places o beyond H."""
    return tl.load(p + o, mask=o < H, other=0.0).to(tl.float32)


@triton.jit
def store_row(p, x, o, H):  # type: ignore[no-untyped-def]
    tl.store(p + o, x.to(p.dtype.element_ty), mask=o < H)


@triton.jit
def inverse_deviation(squares, width):  # type: ignore[no-untyped-def]
    """1 / deviation of `width` values from the sum of their squared distances to the mean, as in
    `nmt.ops.recurrence.layer_norm`."""
    return 1.0 / tl.sqrt(squares / width + 1e-8)
