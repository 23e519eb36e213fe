"""The best share of the pairs that models have made, by a model of the other direction; resumes like their making."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.errors import SettingError
from nmt.files import unused_name

if TYPE_CHECKING:
    from nmt.library.translator import Translator

Score = Callable[[Sequence[tuple[str, str]]], Sequence[float]]
"""From pairs of source and translation, both not empty, the worse the higher."""
SCORES: Final = "scores"
"""End of the name of the file with a number for each pair, as long as there are pairs to score."""
_WINDOW: Final = 2000
_BYTES: Final = 8
_WORST: Final = 1e30
"""Of a pair with two sides; infinity is that of others."""


class Kept(NamedTuple):
    """What is left of the pairs."""

    mask: NDArray[np.bool_]
    """Of all pairs"""
    worse: int
    """Pairs with two sides that are dropped"""
    highest: float
    """The highest score of those that are kept"""


def reverse_score(model: Translator, *, languages: tuple[str, str]) -> Score:
    """The cross entropy of the source given its translation, in nats for each token of the source, end symbol counted.

    Raises ConfigError for a model that translates from and to `languages` itself.
    """
    if (model.source_language, model.target_language) == languages:
        source, target = languages
        message = (
            f"{model.models[0]} translates from {source} to {target} as the teacher does; a model from {target} to"
        )
        raise SettingError(("scored_by", f"{message} {source} is needed"))

    def score(pairs: Sequence[tuple[str, str]]) -> list[float]:
        sources, translations = ([pair[side] for pair in pairs] for side in (0, 1))
        return [one.mean_nll for one in model.score(translations, sources)]

    return score


def scored(files: Sequence[Path], scores: Path, *, score: Score, done: int) -> Iterator[int]:
    """Append a score for each pair of lines of `files`, from pair number `done` on; yields how many have one.

    A pair with an empty side has infinity. Raises OSError.
    """
    with ExitStack() as stack:
        source, target = (stack.enter_context(path.open(encoding="utf-8", newline="\n")) for path in files)
        stream = stack.enter_context(scores.open("r+b" if done else "wb"))
        stream.truncate(done * _BYTES)
        stream.seek(0, os.SEEK_END)
        pairs = islice(zip(source, target, strict=True), done, None)
        while window := [(left.rstrip("\n"), right.rstrip("\n")) for left, right in islice(pairs, _WINDOW)]:
            whole = [place for place, pair in enumerate(window) if all(side.strip() for side in pair)]
            values = np.full(len(window), np.inf)
            if whole:
                values[whole] = np.minimum(score([window[place] for place in whole]), _WORST)
            stream.write(values.astype("<f8").tobytes())
            stream.flush()
            os.fsync(stream.fileno())
            done += len(window)
            yield done


def best_of(scores: Path, *, share: float) -> Kept:
    """The `share` of the pairs with two sides that have the lowest scores; of equals, the earlier ones."""
    values = np.fromfile(scores, "<f8")
    whole = int(np.isfinite(values).sum())
    count = round(share * whole)
    chosen = np.argsort(values, kind="stable")[:count]
    mask = np.zeros(len(values), bool)
    mask[chosen] = True
    return Kept(mask, whole - count, float(values[chosen[-1]]) if count else 0.0)


def write_kept(path: Path, final: Path, mask: NDArray[np.bool_]) -> int:
    """Write the lines of `path` for which `mask` is true to `final`, whole or not at all; returns its bytes."""
    temporary = unused_name(final)
    try:
        with path.open("rb") as lines, temporary.open("wb") as stream:
            stream.writelines(line for line, keeps in zip(lines, mask, strict=True) if keeps)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    return final.stat().st_size
