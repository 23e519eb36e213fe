"""Text in small letters with marks, and back, by a table of how words are usually written.

A word is a run of letters with two forms (`letters`), `ß`, final sigma and combining marks. The first word of a line,
if no digit stands before it, is expected to be as usual with a capital at its beginning, others as usual. A word that
is not as expected has a mark before it, or before the space in front of it, so that its pieces stay the same:

    CAPITAL  the next word begins with a capital, and continues as it stands
    UPPER    the next word is in capitals
    AS_IS    the next word is as it stands
    STRETCH  here begins a stretch of words in capitals, up to END
    TITLE    here begins a stretch of words as usual, but each with a capital at its beginning, up to END
    LITERAL  before the number of a mark: the text has that sign itself

So `iPhone`, where it is not usual, is AS_IS i CAPITAL phone. nmt/light/src/case.c does the same.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from nmt.case_marks.letters import LOWER, UPPER

MARKS = "⇧⇮⇩⇪⇫⇬⇭"
_CAPITAL, _UPPER, _AS_IS, _STRETCH, _TITLE, _END, _LITERAL = list(MARKS)
_COMBINING = "\u0300-\u036f"
_LETTERS = "".join(map(chr, sorted({*LOWER, *UPPER, ord("ß")}))) + _COMBINING
_COMPOSED = re.compile(f"[{''.join(map(chr, LOWER))}][{_COMBINING}]")
"""A capital whose small letter may be composed with what follows: it has to stay as it is."""
_STRETCHES = ((_STRETCH, 2), (_TITLE, 3))
"""Marks of stretches, and how many unexpected words make one."""
_WORDS = re.compile(f"[{_LETTERS}]+|[0-9]")
_MOST_KNOWN = 200_000
_MOST_FORMS = 8000
_LEAST_FORMS = 2
"""How much more often than in small letters a word of the table has another form."""


def lower(text: str) -> str:
    """Small letters for capitals, one for one."""
    return text.translate(LOWER)


def upper(text: str) -> str:
    """Capitals for small letters, one for one."""
    return text.translate(UPPER)


def capital(word: str) -> str:
    """The word with a capital at its beginning, if that letter has one."""
    return upper(word[:1]) + word[1:]


class _Word(NamedTuple):
    begin: int
    end: int
    text: str
    small: str
    expected: str
    title: str
    """As it is expected in a stretch of titles."""

    @property
    def is_unexpected(self) -> bool:
        return self.text != self.expected

    @property
    def is_composed(self) -> bool:
        return not self.text.isascii() and _COMPOSED.search(self.text) is not None

    def suits(self, stretch: str) -> bool:
        """Whether it can be in a stretch."""
        if self.text == self.small or self.is_composed:
            return False
        return self.text == (upper(self.small) if stretch == _STRETCH else self.title)

    def parts(self) -> Iterator[str]:
        """It with its own mark; a mark and what follows it are parts of their own."""
        if self.is_composed or self.text == self.small:
            yield from (_AS_IS, self.text)
        elif self.text == capital(self.small):
            yield from (_CAPITAL, self.small)
        elif self.text == upper(self.small):
            yield from (_UPPER, _ended(self.small))
        else:
            starts = [i for i, (one, small) in enumerate(zip(self.text, self.small, strict=True)) if one != small]
            if starts[0]:
                yield from (_AS_IS, self.small[: starts[0]])
            for start, end in zip(starts, [*starts[1:], len(self.small)], strict=True):
                yield from (_CAPITAL, self.small[start:end])


def _ended(small: str) -> str:
    """A word that is to be in capitals, with a final sigma."""
    return small[:-1] + "ς" if small[1:].endswith("σ") else small


class CaseMarks:
    """Marks by a table of forms that are not in small letters."""

    def __init__(self, forms: Iterable[str], *, symbols: Iterable[str] = ()) -> None:
        """`symbols`: pieces that stand in a text as they are."""
        self._forms = {lower(form): form for form in forms}
        whole = "|".join([*map(re.escape, sorted(symbols, key=len, reverse=True)), "(?!)"])
        self._tokens = re.compile(f"(?P<symbol>{whole})|(?P<word>[{_LETTERS}]+)|(?P<digit>[0-9])|[{MARKS}]")
        self._odd = re.compile(f"{whole}|[{MARKS}{_COMBINING}]")
        self._expected: tuple[dict[str, bool], dict[str, bool]] = {}, {}

    def marked(self, text: str, *, inside: bool = False) -> str:
        """The text in small letters with marks; `inside`: it does not begin its line."""
        return "".join(part for _, part in self._parts(text, inside=inside))

    def marked_places(self, text: str) -> tuple[str, list[int]]:
        """The same, and for each of its characters, and its end, the place of the text from which it is."""
        made, places = "", list[int]()
        for begin, part in self._parts(text):
            made += part
            places += [begin] if part in MARKS else range(begin, begin + len(part))
        return made, [*places, len(text)]

    def _parts(self, text: str, *, inside: bool = False) -> Iterator[tuple[int, str]]:
        """What the marked text is made of, each with its place in the text; a mark is a part of its own."""
        small, words, literals = lower(text), list[_Word](), list[int]()
        if self._is_plain(text, inside):
            if small:
                yield 0, small
            return
        for found in self._tokens.finditer(text):
            kind, (begin, end) = found.lastgroup, found.span()
            if kind == "word":
                own = small[begin:end]
                usual = self._forms.get(own, own)
                title = capital(usual)
                words.append(_Word(begin, end, found[0], own, usual if inside else title, title))
            elif kind == "symbol":
                small = small[:begin] + found[0] + small[end:]
            elif kind is None:
                literals.append(begin)
            inside = inside or kind in ("word", "digit")
        at = 0
        for begin, end, marks, parts, end_mark in _chosen(words, literals, text):
            space = begin - 1 if begin > at and text[begin - 1] == " " and marks else begin
            yield from [(at, small[at:space])] if space > at else []
            yield from ((space, mark) for mark in marks)
            if marks and not begin:
                yield 0, " "  # as before other words
            yield from [(space, " ")] if space < begin else []
            at = begin
            for part in parts:
                yield at, part
                at += len(part) if part not in MARKS else 0
            at = end
            yield from [(end, end_mark)] if end_mark else []
        yield from [(at, small[at:])] if at < len(text) else []

    def _is_plain(self, text: str, inside: bool) -> bool:
        """Whether all words are as expected and nothing is odd, found without looking at the words closely."""
        if self._odd.search(text):
            return False
        for word in _WORDS.findall(text):
            known = self._expected[inside]
            as_expected = known.get(word)
            if as_expected is None:
                as_expected = word == self._written(lower(word), "", "", inside=inside)
                if len(known) < _MOST_KNOWN:
                    known[word] = as_expected
            if not as_expected:
                return False
            inside = True
        return True

    def unmarked(self, text: str) -> str:
        """The text that a marked text stands for; any marked text stands for one."""
        return self.unmarked_places(text)[0]

    def unmarked_places(self, text: str) -> tuple[str, list[int]]:
        """The same, and where in it each character of the marked text, and its end, stands."""
        made, places, at = "", list[int](), 0
        mark = stretch = ""
        inside, after = False, 0
        for found in self._tokens.finditer(text):
            kind, (begin, end) = found.lastgroup, found.span()
            if begin < after:
                continue  # the number of a literal
            between = text[at:begin]
            if not made and text[0] in MARKS:  # before a mark at the beginning there is no space
                kept = between.lstrip(" ")
                places += [0] * (len(between) - len(kept))
                between = kept
            places += range(len(made), len(made) + len(between))
            made += between
            own = found[0]
            if kind == "word":
                own = self._written(own, mark, stretch, inside=inside)
                mark = ""
            elif kind is None:
                number = text[end : end + 1]
                if own == _LITERAL and number and number in "0123456":
                    own, end = MARKS[int(number)], end + 1
                    after = end
                elif own in (_CAPITAL, _UPPER, _AS_IS):
                    mark, own = own, ""
                else:
                    stretch, own = own if own in (_STRETCH, _TITLE) else "" if own == _END else stretch, ""
            inside = inside or kind in ("word", "digit")
            places += [len(made) + min(k, len(own)) for k in range(end - begin)]
            made += own
            at = end
        rest = text[at:] if made or text[:1] not in MARKS else text[at:].lstrip(" ")
        places += [len(made)] * (len(text) - at - len(rest))
        places += range(len(made), len(made) + len(rest) + 1)
        return made + rest, places

    def _written(self, word: str, mark: str, stretch: str, *, inside: bool) -> str:
        if mark:
            return capital(word) if mark == _CAPITAL else upper(word) if mark == _UPPER else word
        if stretch == _STRETCH:
            return upper(word)
        usual = self._forms.get(word, word)
        return usual if inside and not stretch else capital(usual)


def _chosen(
    words: Sequence[_Word], literals: Sequence[int], text: str
) -> Iterator[tuple[int, int, str, Sequence[str], str]]:
    """What is not as expected, in the order of the text: begin, end, marks before it, its parts, mark behind it."""
    modes = [""] * len(words)
    places = range(len(words))
    unexpected = sum(word.is_unexpected for word in words)
    for stretch, least in _STRETCHES:
        if unexpected < least:
            break
        for suits, run in groupby(places, key=lambda i: not modes[i] and words[i].suits(stretch)):
            own = list(run)
            if suits and sum(words[i].is_unexpected for i in own) >= least:
                modes[own[0] : own[-1] + 1] = [stretch] * len(own)
    events: list[tuple[int, int, str, Sequence[str], str]]
    events = [(i, i + 1, "", (_LITERAL, str(MARKS.index(text[i]))), "") for i in literals]
    for i, (word, mode) in enumerate(zip(words, modes, strict=True)):
        opens = mode if i == 0 or modes[i - 1] != mode else ""
        end_mark = _END if mode and i + 1 < len(words) and not modes[i + 1] else ""
        if mode == _STRETCH:
            events.append((word.begin, word.end, opens, (_ended(word.small),), end_mark))
        elif not mode and (word.is_unexpected or word.is_composed):
            mark, *parts = word.parts()
            events.append((word.begin, word.end, opens + mark, parts, end_mark))
        elif opens or end_mark:
            events.append((word.begin, word.end, opens, (word.small,), end_mark))
    return iter(sorted(events, key=lambda event: event[0]))


def usual_forms(lines: Iterable[str], *, symbols: Iterable[str] = ()) -> list[str]:
    """The words of a text that are usually not in small letters, as they are usually written, in the order of their
    small letters: those that save most marks."""
    tokens, counts = CaseMarks((), symbols=symbols)._tokens, Counter[str]()
    found = defaultdict[str, Counter[str]](Counter)
    for line in lines:
        inside = False
        for token in tokens.finditer(line):
            kind, word = token.lastgroup, token[0]
            if kind == "word" and inside:
                counts[word] += 1
            inside = inside or kind in ("word", "digit")
    for word, count in counts.items():
        if not _COMPOSED.search(word):
            found[lower(word)][word] += count
    saved = []
    for small, forms in found.items():
        form = max(forms, key=lambda one: (forms[one], one))
        if form != small and forms[form] - forms[small] >= _LEAST_FORMS:
            saved.append((forms[small] - forms[form], small, form))
    return [form for _, form in sorted((small, form) for _, small, form in sorted(saved)[:_MOST_FORMS])]
