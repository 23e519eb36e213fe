"""What the Triton kernels share: gate functions, the rule for block and prefetch, how tensors are handed over.

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

# A product and a sum as one instruction: Triton 3.9 warns that 3.10 wants to be asked for it.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

LOG2_E: Final = tl.constexpr(1.4426950408889634)

INTERPRETED: Final = tl.constexpr(triton.knobs.runtime.interpret)
"""Triton's interpreter knows no instructions of a GPU."""

ENOUGH_PROGRAMS: Final = 1000

DEPTHS: Final = ((512 * 1024, 12), (1280 * 1024, 7))
"""How deep the pipeline is where all recurrences together load up to so many bytes a step: as deep as it takes to keep
3 MiB and more under way, what a large GPU moves while it waits for its memory, but not so deep that shared memory lets
fewer programs run at once."""
LEAST_DEPTH: Final = 4


@triton.jit
def reciprocal(x):  # type: ignore[no-untyped-def]
    """1 / x for x of 1 and more, by one instruction; Triton's division has four more, for x that a GPU would flush."""
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
    """How an elementwise recurrence is cut up and how it keeps loads in flight. Nothing else depends on it."""

    block: int
    """Channels of one program, a power of two; a program is one warp."""
    unroll: int
    """Time steps whose loads are issued, into registers, before the first of them is computed: so it is written, but of
    four the assembler moves the loads of two behind the arithmetic of the first."""
    stages: int
    """Depth of Triton's software pipeline, which loads into shared memory; 1 without."""


def launch_rule(channels: int, *, loaded: int) -> Launch:
    """The launch for `channels` recurrences side by side, each of which loads `loaded` bytes a step.

    By reasoning about latency and from the code that is generated, not yet by measurement on a GPU.
    """
    block = 128 if channels >= 128 * ENOUGH_PROGRAMS else 64
    stages = next((stages for most, stages in DEPTHS if channels * loaded <= most), LEAST_DEPTH)
    return Launch(block=block, unroll=1, stages=stages)


def launch_for(x: Tensor, *, hidden: int, backward: bool = False) -> Launch:
    """The launch for x [D, B, T, kH], by the rule where the pipeline can load it."""
    if x.element_size() < 4 and hidden % 16:  # the pipeline takes no single values of two bytes
        return Launch(block=64, unroll=3 if backward else 4, stages=1)
    loads = x.size(-1) // hidden + 2 * backward  # and the state and the gradient of the output
    return launch_rule(x.size(0) * x.size(1) * hidden, loaded=loads * x.element_size())


def _reachable(x: Tensor) -> bool:
    """Whether kernels can address x [D, B, T, W]: channels side by side, one sentence within 32-bit offsets."""
    return x.stride(-1) == 1 and x.size(2) * x.stride(2) < 2**31


def readable(x: Tensor) -> Tensor:
    """x [D, B, T, W] itself if a kernel can read it."""
    return x if _reachable(x) else x.contiguous()


def gradient_like(x: Tensor) -> Tensor:
    """Room for the gradient of x [D, B, T, W] in its layout, or contiguous where kernels cannot write that."""
    gradient = torch.empty_like(x)
    return gradient if _reachable(gradient) else x.new_empty(x.shape)


def or_zeros(gradient: Tensor | None, *, like: Tensor) -> Tensor:
    """The gradient of an output, zeros where nothing depends on it."""
    return torch.zeros_like(like) if gradient is None else gradient


def sequence_like(x: Tensor, *, hidden: int) -> Tensor:
    """Room for the states [D, B, T, hidden] of x [D, B, T, kH]; in memory [B, T, D, hidden]."""
    directions, batch, length, _ = x.shape
    return x.new_empty(batch, length, directions, hidden).permute(2, 0, 1, 3)


def mask_bytes(mask: Tensor | None) -> Tensor | None:
    """A mask as kernels read it, uint8, without a copy if it is bool."""
    return None if mask is None else mask.bool().view(torch.uint8)


def mask_strides(mask: Tensor | None) -> tuple[int, int]:
    return (0, 0) if mask is None else (mask.stride(0), mask.stride(1))


@triton.jit
def load_row(p, o, H):  # type: ignore[no-untyped-def]
    """H values from p on, fp32, zero at the places o beyond them."""
    return tl.load(p + o, mask=o < H, other=0.0).to(tl.float32)


@triton.jit
def store_row(p, x, o, H):  # type: ignore[no-untyped-def]
    tl.store(p + o, x.to(p.dtype.element_ty), mask=o < H)


@triton.jit
def inverse_deviation(squares, width):  # type: ignore[no-untyped-def]
    """Of `width` values from the sum of their squared distances to the mean, as `nmt.ops.layer_norm` has it."""
    return 1.0 / tl.sqrt(squares / width + 1e-8)
