"""Which of many keys occur before, found on disk: memory does not grow with the text."""

from __future__ import annotations

import tempfile
from array import array
from contextlib import ExitStack
from typing import Final

import numpy as np

_PARTS: Final = 64
_HELD: Final = 2048
"""Keys of a part that wait to be written."""


class Repeats:
    """Takes a key of 64 bits for each pair, in order; equal keys count as equal pairs.

    With a billion pairs, about three in a hundred billion would be taken for equal by chance. The keys lie in temporary
    files, 16 bytes each, and those that could be equal are compared with each other alone.
    """

    def __init__(self) -> None:
        """Raises OSError where no temporary file can be written."""
        self._stack = ExitStack()
        self._files = [self._stack.enter_context(tempfile.TemporaryFile()) for _ in range(_PARTS)]  # noqa: SIM115
        self._waiting = [array("Q") for _ in range(_PARTS)]
        self._count = 0

    def add(self, key: bytes | None) -> None:
        """The key of the next pair, of 8 bytes; None for one that is equal to no other."""
        if key is not None:
            number = int.from_bytes(key, "little")
            waiting = self._waiting[number % _PARTS]
            waiting.append(number)
            waiting.append(self._count)
            if len(waiting) >= 2 * _HELD:
                waiting.tofile(self._files[number % _PARTS])
                del waiting[:]
        self._count += 1

    def found(self) -> np.ndarray:
        """Whether each pair occurs before, [pairs]; ends the use of the files."""
        repeated = np.zeros(self._count, dtype=bool)
        with self._stack:
            for file, waiting in zip(self._files, self._waiting, strict=True):
                waiting.tofile(file)
                file.seek(0)
                keys, places = np.fromfile(file, dtype=np.uint64).reshape(-1, 2).T
                order = np.argsort(keys, kind="stable")  # equal keys stay in the order of the text
                again = np.flatnonzero(keys[order[1:]] == keys[order[:-1]]) + 1
                repeated[places[order[again]].astype(np.int64)] = True
        return repeated
