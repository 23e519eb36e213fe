"""F1 by the frequency of words, by hand: what compare-mt's buckets of words by frequency count."""

from __future__ import annotations

from collections import Counter

import pytest

from nmt.evaluating.words import by_frequency


def words(*lines: str) -> list[list[str]]:
    return [line.split() for line in lines]


def test_matches_are_clipped_and_counted_where_the_word_belongs():
    counts = Counter(f"{'the ' * 12} cat cat a dog dog dog dog".split())
    assert (counts["the"], counts["cat"], counts["dog"]) == (12, 2, 4)
    found = by_frequency(words("the the cat sat", "a dog dog"), words("the cat is the the", "the dog unseen"), counts)
    by_name = {bucket.times: bucket for bucket in found}
    assert list(by_name) == ["0", "1", "2", "3", "4", "5-9", "10-99", "100-999", "1,000+"]
    the, cat, dog, a, unseen = (by_name[name] for name in ("10-99", "2", "4", "1", "0"))
    assert (the.words, the.written, the.both) == (4, 2, 2)
    assert the.f1 == pytest.approx(100 * 2 * (2 / 2) * (2 / 4) / (2 / 2 + 2 / 4))
    assert (cat.words, cat.written, cat.both, cat.f1) == (1, 1, 1, 100)
    assert (dog.words, dog.written, dog.both) == (1, 2, 1)
    assert (a.words, a.written, a.both, a.f1, a.recall, unseen.precision) == (0, 1, 0, 0, 0, 0)
    assert (the.precision, the.recall) == (100, 50)
    assert (unseen.words, unseen.written, unseen.both) == (2, 1, 0)
    assert sum(bucket.words for bucket in found) == 8 and sum(bucket.written for bucket in found) == 7


def test_bounds_begin_their_buckets():
    found = by_frequency(words("x"), words("x"), {"x": 5}, least=(1, 5, 6))
    assert [(bucket.first, bucket.last, bucket.both) for bucket in found] == [
        (0, 0, 0),
        (1, 4, 0),
        (5, 5, 1),
        (6, None, 0),
    ]
