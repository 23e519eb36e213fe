"""Vectors of words in the text format of GloVe: a word and its numbers a line, separated by spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmt.data.text import read_lines
from nmt.errors import DataError, counted


@dataclass(frozen=True)
class Vectors:
    """Those of some words."""

    ids: NDArray[np.int64]
    """[N], ascending: which words of the vocabulary have one"""
    values: NDArray[np.float32]
    """[N, size]"""
    lines: int
    """Of the file."""
    repeated: int
    """Lines for a word that an earlier line is for; the first counts."""

    def describe(self, file: str, *, words: int) -> str:
        """For people; `words` is the size of the vocabulary, special symbols not counted."""
        share = len(self.ids) / max(1, words)
        again = f", {counted(self.repeated, 'line')} of words that had one" if self.repeated else ""
        known = f"{len(self.ids):,} of {counted(words, 'word')} ({share:.1%})"
        return f"vectors: {known} have one of the {self.lines:,} vectors in {file}{again}"


def read_vectors(file: Path, tokens: Sequence[str], *, size: int) -> Vectors:
    """The vectors of the words among `tokens`, the entries of a vocabulary; exact spelling before lower case.

    Raises DataError naming file and line where one has not `size` numbers. Of lines for other words, only how many
    columns they have is looked at.
    """
    exact = {token: i for i, token in enumerate(tokens)}
    lowered: dict[str, list[int]] = {}
    for i, token in enumerate(tokens):
        if token.lower() != token:
            lowered.setdefault(token.lower(), []).append(i)
    found: dict[int, NDArray[np.float32]] = {}
    lower: dict[int, NDArray[np.float32]] = {}
    seen: set[str] = set()
    number = repeated = 0
    for number, line in enumerate(read_lines(file), start=1):
        line = line.rstrip(" ")
        count = line.count(" ")
        if count < size:
            has = counted(count, "number")
            raise DataError(f"{file}, line {number}: {has} after the word, but model.embedding_size is {size}")
        word, *numbers = line.rsplit(" ", size)
        if count > size and _is_number(word.rpartition(" ")[2]):
            raise DataError(
                f"{file}, line {number}: {count} numbers after the word, but model.embedding_size is {size}"
            )
        if word not in exact and word not in lowered:
            continue
        if word in seen:
            repeated += 1
            continue
        seen.add(word)
        try:
            values = np.array(numbers, np.float32)
        except ValueError:
            wrong = next(text for text in numbers if not _is_number(text))
            raise DataError(f"{file}, line {number}: {wrong!r} is not a number") from None
        if not np.isfinite(values).all():
            raise DataError(f"{file}, line {number}: a number that is not finite")
        if word in exact:
            found[exact[word]] = values
        lower.update(dict.fromkeys(lowered.get(word, ()), values))
    if not number:
        raise DataError(f"{file}: no line in it; a word and {size} numbers a line are expected")
    found = {**lower, **found}
    ids = sorted(found)
    table = np.array([found[i] for i in ids], np.float32).reshape(len(ids), size)
    return Vectors(np.array(ids, np.int64), table, number, repeated)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
