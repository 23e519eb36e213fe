"""A permutation of 0..n-1 that is computed place by place from a key, so that no list of n numbers is ever made."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]

_ROUNDS = 8


class Permutation:
    """A one-to-one map of 0..size-1 onto itself that depends only on its key, the same on every machine.

    A generalised Feistel network: a number is written as (left, right) with left below a and right
    below b, where a * b is hardly larger than `size`, and each round adds a hash of one half to the
    other. Results that are too large are permuted again ("cycle walking", Black and Rogaway,
    Ciphers with arbitrary finite domains, CT-RSA 2002). It is not cryptographically secure.
    """

    def __init__(self, size: int, *key: int | str) -> None:
        """`key`: any numbers and words, such as a seed, what the permutation is for, and the epoch."""
        if not 0 < size < 2**62:
            raise ValueError(f"size {size} must be positive")
        self.size = size
        rows = int(np.ceil(np.sqrt(float(size))))
        self._rows, self._columns = np.uint64(rows), np.uint64(-(-size // rows))
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = np.frombuffer(digest, "<u8").astype(np.uint64)

    def __call__(self, places: Places) -> Places:
        """Where each of `places`, any array of numbers in 0..size-1, goes."""
        found = self._once(np.asarray(places).astype(np.uint64))
        outside = np.flatnonzero(found >= self.size)
        while len(outside):
            found[outside] = self._once(found[outside])
            outside = outside[found[outside] >= self.size]
        return found.astype(np.int64)

    def _once(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = np.divmod(numbers, self._columns)
        for key in self._keys.reshape(-1, 2):
            left = (left + mixed(right ^ key[0]) % self._rows) % self._rows
            right = (right + mixed(left ^ key[1]) % self._columns) % self._columns
        found: NDArray[np.uint64] = left * self._columns + right
        return found


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of each number: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: NDArray[np.uint64] = numbers ^ (numbers >> np.uint64(31))
    return found
