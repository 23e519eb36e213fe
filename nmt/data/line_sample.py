"""A uniform sample of the lines of files: bounded memory, and little work for the lines that are not taken."""

from __future__ import annotations

import math
import random
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, filterfalse, islice
from pathlib import Path
from typing import TypeVar

from nmt.data.text import open_bytes, read_lines
from nmt.light.encodings import MARK

T = TypeVar("T")


def sample_lines(files: Sequence[Path], size: int, *, seed: int) -> Iterator[str]:
    """Yield `size` lines of all files together that are not empty, or all if there are no more.

    Raises DataError naming file and line for text that cannot be read.
    """
    try:
        yield from map(_text, reservoir(_not_empty(files), size, seed=seed))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        for path in files:
            deque(read_lines(path), maxlen=0)  # which names the line
        raise


def reservoir(items: Iterable[T], size: int, *, seed: int) -> list[T]:
    """A uniform sample of `size` items in one pass that computes nothing for most of them.

    Reservoir sampling by Li's algorithm L (Reservoir-sampling algorithms of time complexity
    O(n(1 + log(N/n))), ACM TOMS 1994), which draws how many items to pass over.
    """
    generator, remaining = random.Random(seed), iter(items)
    kept = list(islice(remaining, size))
    threshold = 1.0
    while True:
        threshold *= (1.0 - generator.random()) ** (1.0 / size)
        passed_over = 0.0
        if threshold < 1.0:  # it may be 1 after rounding
            passed_over = math.log(1.0 - generator.random()) / math.log1p(-threshold)
        item = next(islice(remaining, int(min(passed_over, sys.maxsize // 2)), None), None)
        if item is None:
            return kept
        kept[generator.randrange(size)] = item


def _not_empty(files: Sequence[Path]) -> Iterator[bytes]:
    """The lines that are not empty, as bytes with their line ends: most are passed over, and need no decoding."""
    for path in files:
        with open_bytes(path) as stream:
            first = stream.readline().removeprefix(MARK)
            yield from filterfalse(frozenset((b"", b"\n", b"\r\n")).__contains__, chain([first], stream))


def _text(line: bytes) -> str:
    text = line.decode("utf-8")
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
