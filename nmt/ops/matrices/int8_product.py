"""The exact product of two int8 matrices: torch's integer kernel, or the same sum in floating point."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

logger = logging.getLogger(__name__)

MULTIPLE: Final = 8
"""Both widths of a weight are padded to a multiple of this, which the GPU kernel requires."""
_GPU_ROWS: Final = 32
"""The GPU kernel requires more than 16 rows; fewer are padded."""
_EXACT_IN_FP32: Final = (1 << 24) // (127 * 127)
"""Number of terms whose sum is exact in fp32."""


def int8_product(x: Tensor, weight: Tensor) -> Tensor:
    """x [N, K] times the transpose of weight [M, K], both int8 in -127..127: int32 [N, M], exact.

    K and M are multiples of MULTIPLE. Computed by `torch._int_mm` if it works, else by `reference_product`, which is
    reported once.
    """
    if kernel_problem(x.device.type) is not None:
        return reference_product(x, weight)
    if x.is_cuda and len(x) < _GPU_ROWS:
        return torch._int_mm(F.pad(x, (0, 0, 0, _GPU_ROWS - len(x))), weight.t())[: len(x)]
    return torch._int_mm(x, weight.t())


def reference_product(x: Tensor, weight: Tensor) -> Tensor:
    """The same in floating point, also exact, but slower than the product that int8 should replace."""
    dtype = torch.float32 if x.shape[1] <= _EXACT_IN_FP32 else torch.float64
    with torch.autocast(x.device.type, enabled=False):
        return (x.to(dtype) @ weight.to(dtype).t()).to(torch.int32)


@functools.cache
def kernel_problem(device: str) -> str | None:
    """Why the integer kernel cannot be used on such a device, None if it can; reported once."""
    problem = _problem(device, getattr(torch, "_int_mm", None))
    if problem is not None:
        logger.warning("int8: the slow floating-point reference runs on this %s: %s.", device, problem)
    return problem


def _problem(device: str, kernel: Callable[[Tensor, Tensor], Tensor] | None) -> str | None:
    if kernel is None:
        return f"torch {torch.__version__} has no torch._int_mm"
    if device == "cpu" and not torch.backends.mkldnn.is_available():
        return "this build of torch has no oneDNN, without which torch._int_mm is a plain loop"
    # Some older instruction sets add 8-bit products in 16 bits, which overflow for large values.
    x = torch.full((_GPU_ROWS, 64), 127, dtype=torch.int8, device=device)
    x[::2] = -127
    weight = x[: 2 * MULTIPLE].roll(1, 0).contiguous()
    try:
        found = kernel(x, weight.t())
    except (RuntimeError, NotImplementedError) as error:
        return f"torch._int_mm fails ({str(error).strip().splitlines()[0]})"
    return None if torch.equal(found, reference_product(x, weight)) else "torch._int_mm is not exact"
