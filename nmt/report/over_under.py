"""What translations say twice and what they leave out: OTEM, UTEM, repetitions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Words = Sequence[str]
"""The words of a line."""

OTEM_ORDER = 2
UTEM_ORDER = 4
REPEATED_ORDERS = (2, 3, 4)


class OverUnder(NamedTuple):
    """Signs of over- and under-translation in a text; all but the lengths in percent, lower is better."""

    length_ratio: float
    """Words for each word of the references that are closest in length."""
    repeated: tuple[float, ...]
    """The share of n-grams of 2, 3 and 4 words that occurred before in the same sentence."""
    otem: float
    utem: float
    empty: int
    """Lines without a word where every reference has one."""
    short: int
    """Lines with less than half as many words as the shortest reference, the empty ones counted."""
    repeating: int
    """Lines in which a sequence of three words or more comes twice where no reference has it twice."""


def over_under(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]]) -> OverUnder:
    """Of translations against one stream for each set of references, all as words."""
    rows = list(zip(*references, strict=True))
    lengths = sum(_closest(len(line), row) for line, row in zip(hypotheses, rows, strict=True))
    shortest = [min(map(len, row)) for row in rows]
    pairs = list(zip(hypotheses, shortest, strict=True))
    return OverUnder(
        sum(map(len, hypotheses)) / lengths if lengths else 0.0,
        tuple(100 * repeated_share(hypotheses, order) for order in REPEATED_ORDERS),
        otem(hypotheses, references),
        utem(hypotheses, references),
        sum(not line and least > 0 for line, least in pairs),
        sum(2 * len(line) < least for line, least in pairs),
        sum(is_repeating(line, row) for line, row in zip(hypotheses, rows, strict=True)),
    )


def otem(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]], *, order: int = OTEM_ORDER) -> float:
    """OTEM-2 in percent (Yang et al., EMNLP 2018): the share of n-grams that are translated too often; lower is better.

    The excess of an n-gram is its count minus that in the reference, or minus one if the reference lacks it. Of several
    references, the one with the smallest excess above zero counts. The geometric mean over n = 1 to `order` is
    multiplied by exp(1 - r / c) where the c words of the translations are as many as the r of the references or more.
    """
    over, total = [0] * order, [0] * order
    words = closest = 0
    for line, *row in zip(hypotheses, *references, strict=True):
        words += len(line)
        closest += _closest(len(line), row)
        for n, found, wanted in _orders(line, row, order):
            total[n] += sum(found.values())
            for ngram, count in found.items():
                excess = [count - (counts[ngram] or 1) for counts in wanted]
                over[n] += min((more for more in excess if more > 0), default=0)
    return _mean(over, total, longer=words, than=closest) if closest else 0.0


def utem(hypotheses: Sequence[Words], references: Sequence[Sequence[Words]], *, order: int = UTEM_ORDER) -> float:
    """UTEM-4 in percent (Yang et al., EMNLP 2018): the share of n-grams that are not translated; lower is better.

    Of several references, the smallest number of missing n-grams of a sentence and the largest number of n-grams count,
    among references that are long enough to have any. The geometric mean over n = 1 to `order` is multiplied by exp(1 -
    c / r) where the c words of the translations are as many as the r of the references or fewer.
    """
    missing, total = [0] * order, [0] * order
    words = closest = 0
    for line, *row in zip(hypotheses, *references, strict=True):
        words += len(line)
        closest += _closest(len(line), row)
        for n, found, wanted in _orders(line, row, order):
            sizes = [(sum((counts - found).values()), sum(counts.values())) for counts in wanted if counts]
            if sizes:
                missing[n] += min(less for less, _ in sizes)
                total[n] += max(size for _, size in sizes)
    return _mean(missing, total, longer=closest, than=words) if closest else 0.0


def repeated_share(lines: Sequence[Words], order: int) -> float:
    """The share of n-grams that the same line has had before, of 1."""
    counts = [Counter(_ngrams(line, order)) for line in lines]
    total = sum(sum(found.values()) for found in counts)
    return (total - sum(map(len, counts))) / total if total else 0.0


def is_repeating(line: Words, references: Sequence[Words], *, order: int = 3) -> bool:
    """Whether a sequence of `order` words comes more often than once, and than in each of the references."""
    counts = Counter(_ngrams(line, order))
    twice = {ngram: count for ngram, count in counts.items() if count > 1}
    if not twice:
        return False
    wanted = [Counter(_ngrams(reference, order)) for reference in references]
    return any(all(count > found[ngram] for found in wanted) for ngram, count in twice.items())


def _orders(
    line: Words, row: Sequence[Words], order: int
) -> Iterator[tuple[int, Counter[tuple[str, ...]], list[Counter[tuple[str, ...]]]]]:
    """The n-grams of a line and of its references, for each order, from 0."""
    for n in range(order):
        yield n, Counter(_ngrams(line, n + 1)), [Counter(_ngrams(reference, n + 1)) for reference in row]


def _ngrams(line: Words, order: int) -> Iterator[tuple[str, ...]]:
    return (tuple(line[start : start + order]) for start in range(len(line) - order + 1))


def _closest(length: int, references: Sequence[Words]) -> int:
    """The length of the reference that is closest, of two the shorter."""
    return min((abs(len(words) - length), len(words)) for words in references)[1]


def _mean(parts: Sequence[int], totals: Sequence[int], *, longer: int, than: int) -> float:
    """Geometric mean of the shares in percent, with the factor of Yang et al. where one text is the longer."""
    if not all(parts):
        return 0.0
    mean = math.exp(sum(math.log(part / total) for part, total in zip(parts, totals, strict=True)) / len(parts))
    return 100 * mean * (math.exp(1 - than / longer) if longer >= than else 1.0)
