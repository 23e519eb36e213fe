"""Text with spaces between words as labels of its characters: B, M and E of longer words, S of those of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from nmt.tagging.schemes import Span

LABELS: Final = ("B", "M", "E", "S")
_SPACES = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""What has the property White_Space in Unicode, so `\\s` in Perl, by which the SIGHAN scorer splits lines."""


def words_of(line: str) -> list[str]:
    """The words of a line; spaces of any kind and number separate them."""
    return [word for word in _SPACES.split(line) if word]


def labels_of(words: Iterable[str]) -> list[str]:
    """The labels of all characters of some words."""
    return [label for word in words for label in _labels(len(word))]


def _labels(length: int) -> str:
    return "S" if length == 1 else f"B{'M' * (length - 2)}E"


def word_spans(labels: Sequence[str], *, begin: Iterable[int] = ()) -> list[Span]:
    """The words that labels of characters say, whatever their sequence: each character is in one.

    A word begins with B and S, after E and S, and at the places `begin` in any case.
    """
    if not labels:
        return []
    firsts = {0, *begin}
    for place, label in enumerate(labels):
        if label in "BS":
            firsts.add(place)
        if label in "ES" and place + 1 < len(labels):
            firsts.add(place + 1)
    places = sorted(firsts)
    return [Span("", first, end) for first, end in zip(places, [*places[1:], len(labels)], strict=True)]


def begins(words: Sequence[str]) -> list[int]:
    """Where among all characters each word begins."""
    places, place = [], 0
    for word in words:
        places.append(place)
        place += len(word)
    return places
