"""How a sentence pair may be changed, with small chances, so that a model also learns such text."""

from __future__ import annotations

import random
import re
from typing import Final, NamedTuple

from nmt.data.matching import are_unspaced
from nmt.registry import MODIFIERS

_WORD_BEGIN: Final = re.compile(r"(?<![\w'’])[^\W\d_]")
LONG_WORD: Final = re.compile(r"[^\W\d_]{4,}")
END_MARK: Final = re.compile(r"\s*[.!?…。！？।॥؟۔]+$")
_WORDS_OF_AN_ERROR: Final = 12
"""Long words of a line for each typing error in it."""
_CHANGES: Final = (
    (re.compile("[“”„«»‟]"), '"'),
    (re.compile("[‘’‚‹›]"), "'"),
    (re.compile('"([^"]*)"'), r"“\1”"),
    (re.compile("'"), "’"),
    (re.compile(" ?[–—] ?"), " - "),
    (re.compile(" - "), " – "),
    (re.compile("…"), "..."),
    (re.compile(r"\.\.\."), "…"),
    (re.compile(r"(?<=\w)(?=[,;:!?](?:\s|$))"), " "),
    (re.compile(r"(?<=,) "), ""),
    (re.compile("(?<=[.!?]) "), "  "),
    (re.compile(r"(?<=\d)[ \u00a0\u202f](?=\d)"), ""),
)
"""What people type in another way, and how."""


class Pair(NamedTuple):
    """A line of each side."""

    source: str
    target: str


class Modifier:
    """Changes pairs. A plugin's modifier derives from it and is registered with `@MODIFIERS.register("name")`."""

    group = ""
    """Of the modifiers of a group only the first that is drawn changes a pair."""
    needs_next = False
    """Whether it reads the pair that follows in the corpus."""

    def __init__(self, languages: tuple[str, str]) -> None:
        """`languages`: codes of source and target."""
        self.languages = languages

    def __call__(self, pair: Pair, draw: random.Random, following: Pair | None) -> Pair:
        """The changed pair, or the same one where there is nothing to change.

        Args:
            pair: as it is in the corpus, or as modifiers before this one have made it.
            draw: random numbers, the same for a seed, an epoch and the place of a pair.
            following: the next pair of the corpus, where the modifier needs it and there is one.
        """
        raise NotImplementedError


@MODIFIERS.register("upper")
class Upper(Modifier):
    """Both sides in capitals, as in headings."""

    group = "case"

    def __call__(self, pair: Pair, draw: random.Random, following: Pair | None) -> Pair:
        return Pair(*map(_upper, pair, self.languages))


@MODIFIERS.register("title")
class Title(Modifier):
    """A capital at the beginning of each word of both sides."""

    group = "case"

    def __call__(self, pair: Pair, draw: random.Random, following: Pair | None) -> Pair:
        source, target = (
            _WORD_BEGIN.sub(lambda letter, code=code: _upper(letter[0], code), line)  # type: ignore[misc]
            for line, code in zip(pair, self.languages, strict=True)
        )
        return Pair(source, target)


@MODIFIERS.register("lower")
class Lower(Modifier):
    """The source in small letters, its translation as it is: for models that do not mark capitals."""

    group = "case"

    def __call__(self, pair: Pair, draw: random.Random, following: Pair | None) -> Pair:
        source = pair.source
        if _is_turkic(self.languages[0]):
            source = source.replace("I", "ı").replace("İ", "i")
        return pair._replace(source=source.lower())


@MODIFIERS.register("typos")
class Typos(Modifier):
    """Typing errors in the source: in one of about twelve long words two letters change places, one is missing, or one
    stands twice; the first letter stays."""

    def __call__(self, pair: Pair, draw: random.Random, following: Pair | None) -> Pair:
        words = [*LONG_WORD.finditer(pair.source)]
        count = min(len(words), 1 + len(words) // _WORDS_OF_AN_ERROR)
        line = pair.source
        for word in sorted(draw.sample(words, count), key=re.Match.start, reverse=True):
            text, place, kind = word[0], draw.randrange(1, len(word[0]) - 1), draw.randrange(3)
            swapped = text[:place] + text[place + 1] + text[place] + text[place + 2 :]
            changed = (swapped, text[:place] + text[place + 1 :], text[:place] + text[place] + text[place:])[kind]
            line = line[: word.start()] + changed + line[word.end() :]
        return pair._replace(source=line)


@MODIFIERS.register("no_end_mark")
class NoEndMark(Modifier):
    """Without the mark at the end, where both sides have one: a full stop, a question mark and the like."""

    def __call__(self, pair: Pair, draw: random.Random, following: Pair | None) -> Pair:
        found = Pair(*(END_MARK.sub("", line) for line in pair))
        return found if all(found) and all(map(str.__ne__, found, pair)) else pair


@MODIFIERS.register("punctuation")
class Punctuation(Modifier):
    """Quotation marks, dashes, dots and spaces of the source as people type them: one kind in another form."""

    def __call__(self, pair: Pair, draw: random.Random, following: Pair | None) -> Pair:
        changed = [line for what, other in _CHANGES if (line := what.sub(other, pair.source)) != pair.source]
        return pair._replace(source=draw.choice(changed).strip()) if changed else pair


@MODIFIERS.register("merge")
class Merge(Modifier):
    """Two neighbouring pairs as one."""

    needs_next = True

    def __call__(self, pair: Pair, draw: random.Random, following: Pair | None) -> Pair:
        if following is None:
            return pair
        joined = (("" if are_unspaced(both) else " ").join(both) for both in zip(pair, following, strict=True))
        return Pair(*joined)


def _is_turkic(language: str) -> bool:
    return language.lower().partition("-")[0] in ("tr", "az")


def _upper(text: str, language: str) -> str:
    return (text.replace("i", "İ") if _is_turkic(language) else text).upper()
