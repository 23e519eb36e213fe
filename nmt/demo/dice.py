"""Random choices that are the same in every version of Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Draws from a generator by `random` and `randrange` alone, whose sequences Python keeps."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def fraction(self) -> float:
        """A number from 0 up to 1."""
        return self._rng.random()

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._rng.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        """One of the items, each as likely as the others."""
        return items[self._rng.randrange(len(items))]

    def below(self, end: int) -> int:
        """0..end - 1, each as likely as the others."""
        return self._rng.randrange(end)

    def number(self) -> int:
        """2..99, half of them below 13."""
        return self._rng.randrange(2, 13) if self.chance(0.5) else self._rng.randrange(13, 100)

    def hour(self) -> int:
        """2..12; at one o'clock German inflects the number, which the grammar leaves out."""
        return self._rng.randrange(2, 13)
