"""Scores of short and long sentences separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nmt.evaluation.metrics import Metric, Score, check_streams

BOUNDS = (10, 20, 30, 40, 50)


class LengthBucket(NamedTuple):
    """The sentences with a length of `first` to `last` words, and their score as a corpus."""

    first: int
    last: int | None
    """None: no upper limit."""
    sentences: int
    score: Score

    @property
    def words(self) -> str:
        """The range of lengths: `11-20`, or `51+`."""
        return f"{self.first}+" if self.last is None else f"{self.first}-{self.last}"


def by_length(
    metric: Metric,
    hypotheses: Sequence[str],
    *,
    references: Sequence[Sequence[str]],
    bounds: Sequence[int] = BOUNDS,
    lengths: Sequence[int] | None = None,
) -> list[LengthBucket]:
    """Score the sentences in buckets of `lengths`, by default the first reference's words; empty ones are left out.

    `bounds` are the largest lengths of all buckets but the last, ascending. The scores of the buckets do not
    average to the score of the corpus. Raises DataError for streams of different lengths.
    """
    check_streams(hypotheses, references)
    lengths = [len(line.split()) for line in references[0]] if lengths is None else lengths
    buckets = []
    for lower, upper in zip((-1, *bounds), (*bounds, None), strict=True):
        rows = [i for i, length in enumerate(lengths) if length > lower and (upper is None or length <= upper)]
        if rows:
            score = metric.compute([hypotheses[i] for i in rows], [[stream[i] for i in rows] for stream in references])
            buckets.append(LengthBucket(lower + 1, upper, len(rows), score))
    return buckets
