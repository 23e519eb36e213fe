"""Texts compared as people read them: in any form of Unicode, and by words, also in scripts without spaces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TypeVar

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
LONGEST_PARTICLES = 16


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
        if is_boundary(text[:place][-1:], phrase) and is_boundary(phrase, text[end : end + LONGEST_PARTICLES]):
            yield place
        place = text.find(phrase, place + 1)


def is_in_text(phrase: str, text: str) -> bool:
    """Whether `text` contains the phrase as whole words, with any spaces between them and in any form of Unicode."""
    return any(True for _ in occurrences(canonical(text), canonical(phrase)))


def _is_letter(character: str) -> bool:
    return character.isalnum() or character in _JOINERS or unicodedata.category(character).startswith("M")
