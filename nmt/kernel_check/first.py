"""The smallest kernel, tried before all others: if it cannot run, they cannot either."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_SIZE = 256


@triton.jit
def _add_kernel(p_x, p_y, p_sum, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    o = tl.arange(0, SIZE)
    tl.store(p_sum + o, tl.load(p_x + o) + tl.load(p_y + o))


def add_two_vectors(device: torch.device) -> None:
    """Raise RuntimeError, or the error of compiling or running the kernel, unless it computes a sum."""
    x = torch.arange(_SIZE, dtype=torch.float32, device=device)
    result = torch.full_like(x, torch.nan)
    with torch.cuda.device_of(x):
        _add_kernel[(1,)](x, 2 * x, result, SIZE=_SIZE)
    if not torch.equal(result, 3 * x):
        raise RuntimeError("a kernel that adds two vectors does not")
