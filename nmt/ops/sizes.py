"""Few sizes in place of many, so that what has been prepared for one serves the next batch; rows that are aligned."""

from __future__ import annotations

from typing import Final

from torch import Tensor

ALIGNED: Final = 64
"""Values: 128 bytes in bf16, what a GPU reads at once."""


def next_size(count: int, *, an_octave: int) -> int:
    """The smallest of these sizes that is no less than `count`: all up to 2 * an_octave, then an_octave sizes, a power
    of two, from each power of two to the next."""
    unit = 1 << max(0, count.bit_length() - an_octave.bit_length())
    return -(-count // unit) * unit


def aligned_rows(rows: int, width: int, *, like: Tensor) -> Tensor:
    """Room [rows, width] for values such as those of `like`, whose rows begin at multiples of ALIGNED values.

    Kernels and matrix products then read and write several values by one instruction, whatever the width.
    """
    return like.new_empty(rows, -(-width // ALIGNED) * ALIGNED)[:, :width]
