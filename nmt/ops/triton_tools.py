"""Common parts of the Triton kernels: gate functions, rows, the form of tensor arguments.

Imported only by kernels, because Triton is not installed everywhere.
"""
# ruff: noqa: N803 - inside kernels sizes are written as in their shapes

from __future__ import annotations

import os
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

# A product and a sum as one instruction: Triton 3.9 warns that 3.10 will do this only on request.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

LOG2_E: Final = tl.constexpr(1.4426950408889634)

INTERPRETED: Final = tl.constexpr(triton.knobs.runtime.interpret)
"""Whether Triton's interpreter runs, which does not support GPU instructions."""


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
