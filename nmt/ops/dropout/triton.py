"""Dropout in Triton: the masks of `nmt.ops.dropout`."""

from __future__ import annotations

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.ops.dropout import Draw, threshold

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: N803 - inside kernels constants are in capitals, and sizes as in their shapes

BLOCK: Final = 256
"""Counters of a program, each of which gives the random numbers of four values."""
WARPS: Final = 4


@triton.jit
def _keep_or_drop(p_x, p_out, o, number, limit, scale, inside):
    x = tl.load(p_x + o, mask=inside, other=0.0).to(tl.float32)
    factor = tl.where(number < limit, 0.0, scale)
    tl.store(p_out + o, (x * factor).to(p_out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["N", "key_low", "key_high", "layer", "limit", "scale"])
def dropout_mask_kernel(p_x, p_places, p_out, N, W, key_low, key_high, layer, limit, scale, BLOCK: tl.constexpr):
    """x [N, W] times 0 or `scale`. Counter i of a row is for channel 64 (i // 16) + i % 16 and three more, 16 apart.

    All numbers are 32-bit words, passed as signed integers.
    """
    counters = tl.cdiv(W, 64) * 16  # of a row
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, counter = i // counters, (i % counters).to(tl.int32)
    place = tl.load(p_places + row, mask=row < N, other=0)
    a, b, c, d = tl.random.philox_impl(
        counter.to(tl.uint32, bitcast=True),
        (place & 0xFFFFFFFF).to(tl.uint32),
        ((place >> 32) & 0xFFFFFFFF).to(tl.uint32),
        tl.full([BLOCK], layer, tl.int32).to(tl.uint32, bitcast=True),
        tl.full([BLOCK], key_low, tl.int32).to(tl.uint32, bitcast=True),
        tl.full([BLOCK], key_high, tl.int32).to(tl.uint32, bitcast=True),
    )
    limit = tl.full([BLOCK], limit, tl.int32).to(tl.uint32, bitcast=True)
    channel = counter // 16 * 64 + counter % 16
    o = row * W + channel
    live = row < N
    _keep_or_drop(p_x, p_out, o, a, limit, scale, live & (channel < W))
    _keep_or_drop(p_x, p_out, o + 16, b, limit, scale, live & (channel + 16 < W))
    _keep_or_drop(p_x, p_out, o + 32, c, limit, scale, live & (channel + 32 < W))
    _keep_or_drop(p_x, p_out, o + 48, d, limit, scale, live & (channel + 48 < W))


def _signed(number: int) -> int:
    """The signed 32-bit integer with the low 32 bits of `number`: Triton gives larger numbers another type."""
    return (number + 2**31) % 2**32 - 2**31


def dropout_triton(x: Tensor, p: float, draw: Draw) -> Tensor:
    """See `nmt.ops.dropout.reference_dropout`; x [N, W] in fp32, bf16 or fp16, no gradient."""
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    rows, width = x.shape
    if x.numel() == 0:
        return out
    places = torch.arange(rows, device=x.device) if draw.places is None else draw.places.contiguous()
    numbers = map(_signed, (draw.key, draw.key >> 32, draw.layer, threshold(p)))
    programs = triton.cdiv(rows * triton.cdiv(width, 64) * 16, BLOCK)
    with torch.cuda.device_of(x):
        dropout_mask_kernel[(programs,)](
            x, places, out, rows, width, *numbers, 1 / (1 - p), BLOCK=BLOCK, num_warps=WARPS
        )
    return out
