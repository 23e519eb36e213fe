"""Phrases looked for in texts as people read them: in any form of Unicode, in any case, and as whole words."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from nmt.data.matching import LONGEST_PARTICLES, is_boundary
from nmt.data.tokenizer import Span

Value = TypeVar("Value")

_HALF_WIDTH_VOICING = "\uff9e\uff9f"
"""Letters to Unicode, but one character of full width with the Kana before them."""


class _Read(NamedTuple):
    """A text as it is compared."""

    text: str
    begins: list[int]
    """Where in the original each character of it begins; -1 within what is compared as one."""
    ends: list[int]
    """Where it ends; -1 likewise."""


class Matcher(Generic[Value]):
    """Phrases that are looked for as whole words.

    A phrase in lower case matches any case, another one only its exact spelling. Of overlapping phrases the one that
    begins first counts, and of these the longest. Texts are compared as `reads` normalises them, and beyond that do
    not differ if they are composed and decomposed; white space is like any other.
    """

    def __init__(self, phrases: Mapping[str, Value], *, reads: Callable[[str], str] = str) -> None:
        self._form = lru_cache(maxsize=1 << 14)(lambda cluster: _form(cluster, reads))
        self._known: dict[str, list[tuple[str | None, Value]]] = {}
        lengths: dict[str, set[int]] = {}
        # Of phrases that differ only in case, the one that matches only its own case comes first.
        for phrase in sorted(phrases, key=lambda phrase: phrase == phrase.lower()):
            text = self._read(phrase.strip(), folds=True).text
            if text:
                own = None if phrase == phrase.lower() else self._read(phrase.strip(), folds=False).text
                self._known.setdefault(text, []).append((own, phrases[phrase]))
                lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: sorted(own, reverse=True) for first, own in lengths.items()}

    def find(self, text: str) -> list[tuple[Span, Value]]:
        """Where in a text phrases are, in order, and what belongs to each."""
        read = self._read(text, folds=True)
        found: list[tuple[Span, Value]] = []
        place = 0
        while place < len(read.text):
            match = self._at(text, read, place)
            if match is not None:
                found.append(match[1:])
            place = place + 1 if match is None else match[0]
        return found

    def _at(self, text: str, read: _Read, place: int) -> tuple[int, Span, Value] | None:
        """The longest phrase that begins at a place of what was read: its end there, its span, and what belongs to
        it."""
        for length in self._lengths.get(read.text[place], ()):
            phrase = read.text[place : place + length]
            end = place + len(phrase)  # of a text that ends earlier, a shorter phrase
            if phrase not in self._known or read.begins[place] < 0 or read.ends[end - 1] < 0:
                continue
            follows = read.text[end : end + LONGEST_PARTICLES]
            if is_boundary(read.text[max(0, place - 1) : place], phrase) and is_boundary(phrase, follows):
                span = read.begins[place], read.ends[end - 1]
                for own, value in self._known[phrase]:
                    if own is None or own == self._read(text[slice(*span)], folds=False).text:
                        return end, span, value
        return None

    def _read(self, text: str, *, folds: bool) -> _Read:
        letters = ""
        begins: list[int] = []
        ends: list[int] = []
        for begin, end in _clusters(text):
            form = self._form(text[begin:end])
            form = form.lower().replace("\u03c2", "\u03c3").replace("i\u0307", "i") if folds else form
            if form == " " and letters.endswith(" "):
                ends[-1] = end
            elif form:
                letters += form
                begins += [begin, *[-1] * (len(form) - 1)]
                ends += [*[-1] * (len(form) - 1), end]
        return _Read(letters, begins, ends)


def _form(cluster: str, reads: Callable[[str], str]) -> str:
    """A character and the marks on it as they are compared."""
    if not unicodedata.combining(cluster[0]):
        read = reads(f"a{cluster}a")  # in a text, white space at the ends of which is left out
        cluster = read[1:-1] if len(read) > 1 and read[0] == read[-1] == "a" else cluster
    cluster = unicodedata.normalize("NFC", cluster)
    return " " if cluster.isspace() else cluster


def _clusters(text: str) -> Iterator[Span]:
    """Characters with the marks on them, and what else Unicode can write as one character."""
    begin = 0
    for place in range(1, len(text) + 1):
        if place == len(text) or not _continues(text[max(begin, place - 3) : place], text[place]):
            yield begin, place
            begin = place


@lru_cache(maxsize=1 << 14)
def _continues(before: str, letter: str) -> bool:
    if letter.isascii():
        return False
    both = unicodedata.normalize("NFC", before) + unicodedata.normalize("NFC", letter)
    is_mark = unicodedata.combining(letter) != 0 or letter in _HALF_WIDTH_VOICING
    return is_mark or unicodedata.normalize("NFC", before + letter) != both
