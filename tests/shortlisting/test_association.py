"""Counting co-occurrences: against a plain count, its bounds and its order."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np

from nmt.shortlisting import association
from nmt.shortlisting.association import CoOccurrences

SOURCE, TARGET = 9, 11


def corpus(pairs: int) -> list[tuple[list[int], list[int]]]:
    generator = random.Random(4)

    def sentence(size: int) -> list[int]:
        return [generator.randrange(3, size - 1) for _ in range(generator.randint(1, 6))]

    return [(sentence(SOURCE), sentence(TARGET)) for _ in range(pairs)]


def test_partners_are_those_of_a_plain_count(monkeypatch) -> None:
    monkeypatch.setattr(association, "PIECE", 7)  # several pieces, the last one not full
    pairs = corpus(40)
    counts = CoOccurrences(SOURCE, TARGET)
    counts.add(pairs[:25])
    counts.add(pairs[25:])
    joint = Counter((s, t) for source, target in pairs for s in set(source) for t in set(target))
    source_counts = Counter(s for source, _ in pairs for s in set(source))
    target_counts = Counter(t for _, target in pairs for t in set(target))
    partners, starts = counts.best_partners(3)
    assert len(starts) == SOURCE + 1
    for s in range(SOURCE):
        dice = {t: 2 * joint[s, t] / (source_counts[s] + target_counts[t]) for t in range(TARGET) if joint[s, t]}
        wanted = sorted(sorted(dice, key=lambda t: (-dice[t], t))[:3])
        assert partners[starts[s] : starts[s + 1]].tolist() == wanted
    assert counts.most_frequent(4).tolist() == sorted(sorted(target_counts, key=lambda t: (-target_counts[t], t))[:4])
    assert counts.sentences == 40


def test_the_rarest_pairs_are_forgotten_first() -> None:
    counts = CoOccurrences(SOURCE, TARGET, most=2)
    counts.add([([3], [3])] * 3 + [([4], [4])] * 2 + [([5], [5])])
    partners, starts = counts.best_partners(5)
    assert partners.tolist() == [3, 4]
    assert np.diff(starts).tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0]


def test_nothing_counted_lists_nothing() -> None:
    partners, starts = CoOccurrences(SOURCE, TARGET).best_partners(5)
    assert len(partners) == 0
    assert starts.tolist() == [0] * (SOURCE + 1)
