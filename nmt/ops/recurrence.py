"""Small things that all operations share: layer norm, types, rows, sizes, masks, directions, the recurrent product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-8


def layer_norm(x: Tensor, scale: Tensor, offset: Tensor, *, widths: Sequence[int] = ()) -> Tensor:
    """scale * (x - mean) / sqrt(variance + 1e-8) + offset over the last axis (Ba et al. 2016).

    x [..., N], scale and offset [N]. The variance is the population variance. Computed and returned in at least fp32,
    because 1e-8 has no effect in bf16. Consecutive parts are normalised separately; their `widths` add up to N.
    """
    if len(widths) > 1:
        parts = zip(*(torch.split(tensor, list(widths), -1) for tensor in (x, scale, offset)), strict=True)
        return torch.cat([layer_norm(*part) for part in parts], -1)
    dtype = torch.promote_types(scale.dtype, torch.float32)
    return F.layer_norm(x.to(dtype), scale.shape, scale.to(dtype), offset.to(dtype), EPSILON)


State = tuple[Tensor, ...]
"""The state carried from one time step to the next: tensors [N, H], h first."""


class Recurrent(NamedTuple):
    """Parameters of the product of a state with a recurrent matrix."""

    weight: Tensor  # [kH, H]
    bias: Tensor  # [kH], added after the layer norm
    scale: Tensor | None = None  # [kH], layer norm of the product; None without layer norm
    offset: Tensor | None = None  # [kH]


class Projection(NamedTuple):
    """A product with a matrix: x W', normalised if there is a scale, plus the bias, if any."""

    weight: Tensor  # [m, n]
    bias: Tensor | None = None  # [m]
    scale: Tensor | None = None  # [m], layer norm; None without layer norm
    offset: Tensor | None = None  # [m]
    widths: tuple[int, ...] = ()
    """Widths of the parts that are normalised separately; empty: all values together"""


def recurrent_product(h: Tensor, parameters: Recurrent, *, widths: Sequence[int] = ()) -> Tensor:
    """h [N, H] times the recurrent matrix, plus bias: [N, kH].

    With a scale, the product is normalised before the bias is added: as a whole, or in parts of `widths`.
    """
    weight, bias, scale, offset = parameters
    h = h.to(weight.dtype)
    if scale is None or offset is None:
        return F.linear(h, weight, bias)
    return layer_norm(F.linear(h, weight), scale, offset, widths=widths) + bias


def at_least_fp32(x: Tensor) -> Tensor:
    """x in fp32, or in fp64 if it is fp64: states and gates are kept so even if autocast computes products in bf16."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def product_type(x: Tensor) -> torch.dtype:
    """The type of a matrix product with `x`: that of autocast, which does not change fp64, else the type of `x`."""
    device = x.device.type
    casts = x.dtype != torch.float64 and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if casts else x.dtype


def readable_rows(x: Tensor) -> Tensor:
    """x with values of its last axis side by side, as kernels read them; x itself if they already are."""
    return x if x.stride(-1) == 1 else x.contiguous()


def time_order(length: int, *, reverse: bool) -> range:
    """Time steps in the order of computation."""
    return range(length - 1, -1, -1) if reverse else range(length)


def live_rows(mask: Tensor | None, *, length: int) -> Sequence[Tensor | None]:
    """For each time step which rows are real, bool [B, 1]; None if all are real, so that nothing is selected.

    Checking whether all rows are real would stall a GPU, so there only a missing mask counts as all real.
    """
    if mask is None:
        return [None] * length
    mask = mask.bool()
    columns = mask.unsqueeze(-1).unbind(1)
    if mask.is_cuda or traced():
        return columns
    return [None if full else column for full, column in zip(mask.all(0).tolist(), columns, strict=True)]


ALIGNED: Final = 64
"""Number of values: 128 bytes in bf16, the amount that a GPU reads at once."""


def next_size(count: int, *, an_octave: int) -> int:
    """The smallest allowed size not less than `count`. All sizes up to 2 * an_octave are allowed, then an_octave sizes
    from each power of two to the next; an_octave is a power of two."""
    unit = 1 << max(0, count.bit_length() - an_octave.bit_length())
    return -(-count // unit) * unit


def aligned_rows(rows: int, width: int, *, like: Tensor) -> Tensor:
    """An uninitialised tensor [rows, width] of the type of `like`, whose rows begin at multiples of ALIGNED values.

    Kernels and matrix products can then read and write several values with one instruction, for any width.
    """
    return like.new_empty(rows, -(-width // ALIGNED) * ALIGNED)[:, :width]


def traced() -> bool:
    """Whether torch.jit.trace, torch.export or torch.compile is tracing.

    Code that they cannot see, such as a C kernel, must not run then, and control flow must not depend on values.
    """
    return torch.jit.is_tracing() or torch.compiler.is_compiling()  # type: ignore[attr-defined]
