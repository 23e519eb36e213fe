"""Few sizes instead of many, so that work prepared for one batch can be reused for the next; and aligned rows."""

from __future__ import annotations

from typing import Final

from torch import Tensor

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
