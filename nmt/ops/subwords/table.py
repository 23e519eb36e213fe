"""A table of pairs of small numbers, as a dictionary for Python and as arrays with open addressing for C."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_FACTOR = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, whose multiples spread well."""
_FREE = -1


class Table:
    """The values of pairs (a, b); all numbers are at least 0 and below 2^31."""

    def __init__(self, values: Mapping[tuple[int, int], int]) -> None:
        size = 2
        while size < 2 * len(values):  # at most half full, so that a look-up seldom meets a second key
            size *= 2
        self.mask = size - 1
        self.keys: NDArray[np.int64] = np.full(size, _FREE, np.int64)
        self.values: NDArray[np.int32] = np.zeros(size, np.int32)
        self._dictionary = dict(values)
        for (a, b), value in self._dictionary.items():
            key = a << 32 | b
            place = ((key * _FACTOR) % 2**64 >> 32) & self.mask
            while self.keys[place] != _FREE:
                place = (place + 1) & self.mask
            self.keys[place], self.values[place] = key, value

    def find(self, a: int, b: int) -> int:
        """The value of a pair, -1 for none."""
        return self._dictionary.get((a, b), -1)
