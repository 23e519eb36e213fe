"""How well words are translated that are frequent or rare in the training text, as compare-mt reports it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nmt.evaluation.over_under import Words

BOUNDS = (1, 2, 3, 4, 5, 10, 100, 1000)
"""Lower bounds of the buckets, in addition to the bucket of words not seen in training."""


class FrequencyBucket(NamedTuple):
    """The words that occur `first` to `last` times in the training text."""

    first: int
    last: int | None
    """None: no upper limit."""
    words: int
    """In the references."""
    written: int
    """In the translations."""
    both: int
    """In both."""

    @property
    def times(self) -> str:
        """The range: `0`, `5-9`, `1,000+`."""
        if self.last is None:
            return f"{self.first:,}+"
        return f"{self.first:,}" if self.first == self.last else f"{self.first:,}-{self.last:,}"

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall of these words, in percent; 0 where none is right."""
        return 200 * self.both / (self.words + self.written) if self.both else 0.0


def frequencies(lines: Iterable[Words]) -> Counter[str]:
    """How often each word comes in a text."""
    return Counter(word for line in lines for word in line)


def by_frequency(
    hypotheses: Sequence[Words],
    references: Sequence[Words],
    counts: Mapping[str, int],
    *,
    bounds: Sequence[int] = BOUNDS,
) -> list[FrequencyBucket]:
    """Of translations against one set of references; words match as often as a sentence pair has them on both sides."""
    starts = (0, *bounds)
    totals = [[0, 0, 0] for _ in starts]
    for line, reference in zip(hypotheses, references, strict=True):
        found, wanted = Counter(line), Counter(reference)
        for column, words in enumerate((wanted, found, found & wanted)):
            for word, number in words.items():
                frequency = counts.get(word, 0)
                place = max(place for place, start in enumerate(starts) if frequency >= start)
                totals[place][column] += number
    ends = [start - 1 for start in bounds]
    return [
        FrequencyBucket(first, last, *numbers)
        for first, last, numbers in zip(starts, [*ends, None], totals, strict=True)
    ]
