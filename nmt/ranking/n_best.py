"""N-best lists in Moses' format: `number ||| text ||| name= value ... ||| score`, a line for each translation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from nmt.errors import DataError, shown

BAR = "|||"
ESCAPED = "&#124;" * len(BAR)
"""Replacement for a bar in a text."""
NAME = re.compile(r"[^\s=,|]+")
"""The name of a feature."""
MOST_MISSING = 100_000
"""Consecutive lines that may have no translation; a larger gap is taken for a damaged number."""


@dataclass(frozen=True)
class Entry:
    """One translation of a line."""

    number: int
    """Number of the line, from 0."""
    text: str
    features: Mapping[str, float]
    """By their names; of several values of one name those after the first are `name.2`, `name.3` and so on."""
    written: str
    """The features as written in the list."""
    rest: tuple[str, ...]
    """The rest of the line after the features: the score, and anything else."""

    def with_feature(self, name: str, value: float) -> Entry:
        """The same with one more feature, after the others."""
        written = f"{self.written} {name}= {value:.6f}".strip()
        return replace(self, features={**self.features, name: value}, written=written)

    def with_score(self, score: float) -> Entry:
        """The same with another score."""
        return replace(self, rest=(f"{score:.6f}", *self.rest[1:]))

    def line(self) -> str:
        """As it stands in a list, with the end of the line."""
        parts = (str(self.number), self.text.replace(BAR, ESCAPED), self.written, *self.rest)
        return f" {BAR} ".join(parts) + "\n"


def read_n_best(lines: Iterable[str], *, name: str) -> Iterator[Entry]:
    """The translations of a list, in order; `name` is what errors call it.

    Raises DataError, naming the line, if the format is wrong, or if line numbers decrease or skip more than
    MOST_MISSING.
    """
    last = 0
    for place, line in enumerate(lines, start=1):
        where = f"{name}, line {place}"
        number, *others = (part.strip() for part in line.split(BAR))
        if len(others) < 2 or not (number.isascii() and number.isdigit()) or len(number) > 18:
            raise DataError(
                f"{where}: not of the form 'number {BAR} text {BAR} name= value ... {BAR} score', Moses' format"
            )
        text, written, *rest = others
        features = _features(written, where=where)
        previous, last = last, int(number)
        if last < previous:
            raise DataError(f"{where}: number {last} comes after {previous}; numbers must not fall")
        if last - previous > MOST_MISSING:
            left_out = f"more than {MOST_MISSING:,} lines without a translation"
            raise DataError(f"{where}: number {last} comes after {previous}: {left_out}")
        yield Entry(last, text.replace(ESCAPED, BAR), features, written, tuple(rest))


def groups_of(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The translations of each line together."""
    for _, group in groupby(entries, key=lambda entry: entry.number):
        yield list(group)


def _features(written: str, *, where: str) -> dict[str, float]:
    found: dict[str, float] = {}
    name, count = "", 1
    for part in [*written.split(), "="]:
        if part.endswith("="):
            if not count:
                raise DataError(f"{where}: {shown(name)} has no value; allowed: 'name= number', as in 'score= -1.5'")
            name, count = part[:-1], 0
            continue
        count += 1
        key = name if count == 1 else f"{name}.{count}"
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        problem = None
        if not NAME.fullmatch(name):
            problem = f"{shown(name or part)} is not a name of a feature"
        elif math.isnan(value):
            problem = f"{shown(part)}, the value of {shown(key)}, is not a number"
        elif key in found:
            problem = f"{shown(key)} is given twice"
        if problem is not None:
            raise DataError(f"{where}: {problem}; allowed: 'name= number', as in 'score= -1.5'")
        found[key] = value
    return found
