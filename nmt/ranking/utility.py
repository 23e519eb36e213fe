"""Minimum Bayes risk by any metric (Eikema and Aziz, EMNLP 2022): the translation that is best on average if each one
of its line in turn is the reference.

M different texts of a line have M * M pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from nmt.errors import DataError, counted
from nmt.evaluation.metrics import Metric, of_sentences
from nmt.ranking.n_best import Entry

PAIRS: Final = 4096
"""So many at least are given to the metric at once, if there are so many."""


def by_expected_utility(
    groups: Iterable[Sequence[Entry]], metric: Metric, *, sources: Sequence[str] | None = None
) -> Iterator[tuple[Sequence[Entry], list[Entry]]]:
    """The translations of each line as they are given, and best first with their expected utility as score.

    All translations of a line have the same weight, so a text that is there twice counts twice; of equal ones the first
    stays first. `sources`: text of each line, for metrics that look at it.

    Raises ConfigError for a metric without scores of sentences, DataError for a line that has no source.
    """
    waiting: list[Sequence[Entry]] = []
    pairs = 0
    for group in groups:
        if sources is not None and group[0].number >= len(sources):
            line = group[0].number + 1
            raise DataError(f"line {line} has translations, but --source {counted(len(sources), 'line')}")
        waiting.append(group)
        pairs += len({entry.text for entry in group}) ** 2
        if pairs >= PAIRS:
            yield from _ordered(waiting, metric, sources)
            waiting, pairs = [], 0
    if waiting:
        yield from _ordered(waiting, metric, sources)


def _ordered(
    groups: Sequence[Sequence[Entry]], metric: Metric, sources: Sequence[str] | None
) -> Iterator[tuple[Sequence[Entry], list[Entry]]]:
    texts = [Counter(entry.text for entry in group) for group in groups]
    pairs = [(place, one, other) for place, own in enumerate(texts) for one in own for other in own]
    source = [sources[groups[place][0].number] for place, *_ in pairs] if sources is not None else None
    found = iter(of_sentences(metric, [one for _, one, _ in pairs], [[other for _, _, other in pairs]], sources=source))
    sign = 1 if metric.higher_is_better else -1
    for group, own in zip(groups, texts, strict=True):
        table = np.array([[next(found) for _ in own] for _ in own])  # [M, M]; of a row, each other is the reference
        expected = dict(zip(own, (table @ np.array([*own.values()])) / len(group), strict=True))
        best_first = sorted(group, key=lambda entry: -sign * expected[entry.text])
        yield group, [entry.with_score(expected[entry.text]) for entry in best_first]
