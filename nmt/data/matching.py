"""Texts compared as people read them: in any form of Unicode, and by words, also in scripts without spaces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from nmt.data.tokenizer import Span

Value = TypeVar("Value")

UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\uaa60-\uaa7f\u3005-\u3007\u3040-\u312f\u31f0-\u31ff"
    "\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Characters of scripts without spaces between words, for a class of a regular expression: Thai, Lao, Tibetan, Burmese,
Khmer, Kana, Bopomofo, Han."""
MARKS = "".join(letter for letter in map(chr, range(0x300, 0x1E950)) if unicodedata.category(letter)[0] == "M")
"""Marks on letters and vowels written as such, which are no word characters of regular expressions, for a class."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
_JOINERS = "_\u00ad\u200c\u200d\u2060"
"""What joins the letters on both sides to one word: soft hyphen, and marks without width."""
_LENGTHENING = "\u30fc\uff70"
_HALF_WIDTH_VOICING = "\uff9e\uff9f"
"""Letters to Unicode, but one character of full width with the Kana before them."""
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))

_HANGUL = range(0xAC00, 0xD7A4)
_FINALS = 28
"""The syllables that differ in their last consonant alone, of which the first has none."""
_AFTER_ANY = (
    "의|에|에서|에게|에게서|께|께서|한테|한테서|도|만|까지|부터|마저|조차|보다|처럼|같이|마다|밖에|뿐|들|하고|입니다"
)
_AFTER_VOWEL = "는|가|를|와|로|나|랑|라도|라고|라는|예요|였다"
_AFTER_CONSONANT = "은|이|을|과|으로|로|이나|이랑|이라도|이라고|이라는|이에요|이었다|이다|이고|이며|인"


_PARTICLES = [
    re.compile(f"(?:{_AFTER_ANY}|{first})(?:{_AFTER_ANY}|{_AFTER_VOWEL}|{_AFTER_CONSONANT})*(?![\\w{MARKS}])")
    for first in (_AFTER_VOWEL, _AFTER_CONSONANT)
]
"""The rest of a Korean word that is particles, after a vowel and after a consonant."""
_LONGEST_PARTICLES = 16


def canonical(text: str) -> str:
    """A text whose letters are composed (NFC), with one space for any white space: equal texts look the same."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    return " ".join(text.split())


def folded(text: str) -> str:
    """A text without regard to case, white space, width, marks that cannot be seen, and the like (NFKC)."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(_INVISIBLE)
        return unicodedata.normalize("NFKC", canonical(text).casefold())
    return canonical(text).casefold()


def spellings(text: str) -> list[str]:
    """A text as it is, with its letters composed and decomposed; each once."""
    return list(dict.fromkeys([text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))]))


def are_unspaced(lines: Sequence[str]) -> bool:
    """Whether most letters of lines belong to scripts without spaces between words, and few spaces are there.

    Text that has been split into words has one for every two to four letters.
    """
    text = "\n".join(lines)
    letters, unspaced = sum(map(str.isalpha, text)), len(_UNSPACED.findall(text))
    return 2 * unspaced > letters > 0 and 8 * text.count(" ") < unspaced


def is_boundary(before: str, after: str) -> bool:
    """Whether a word can end between two texts, of which one is '' at the beginning and the end.

    A word ends where a letter, a digit or `_` is next to another kind of character; in scripts without spaces between
    any two letters; in Korean also before particles, as far as `after` shows them.
    """
    last, first = before[-1:], after[:1]
    if not last or not first or not _is_letter(last) or not _is_letter(first):
        return True
    if unicodedata.category(first).startswith("M") or first in _LENGTHENING or last in _JOINERS or first in _JOINERS:
        return False
    if _UNSPACED.match(last) or _UNSPACED.match(first):
        return True
    if ord(first) not in _HANGUL:
        return False
    kinds = _PARTICLES if ord(last) not in _HANGUL else [_PARTICLES[bool((ord(last) - _HANGUL[0]) % _FINALS)]]
    return any(particles.match(after) for particles in kinds)


def occurrences(text: str, phrase: str) -> Iterator[int]:
    """The positions of a phrase in `text` as whole words."""
    place = text.find(phrase)
    while place >= 0:
        end = place + len(phrase)
        if is_boundary(text[:place][-1:], phrase) and is_boundary(phrase, text[end : end + _LONGEST_PARTICLES]):
            yield place
        place = text.find(phrase, place + 1)


def is_in_text(phrase: str, text: str) -> bool:
    """Whether `text` contains the phrase as whole words, with any spaces between them and in any form of Unicode."""
    return any(True for _ in occurrences(canonical(text), canonical(phrase)))


def _is_letter(character: str) -> bool:
    return character.isalnum() or character in _JOINERS or unicodedata.category(character).startswith("M")


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
            end, phrase = place + length, read.text[place : place + length]
            if phrase not in self._known or read.begins[place] < 0 or read.ends[end - 1] < 0:
                continue
            follows = read.text[end : end + _LONGEST_PARTICLES]
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
