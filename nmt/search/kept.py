"""Source lines with kept parts: placeholders and terms of a glossary, and what the model reads in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from nmt.config.schema import DecodingConfig
from nmt.data import Tokenizer
from nmt.data.matching import Matcher, canonical
from nmt.data.text import read_lines
from nmt.data.tokenizer import Span
from nmt.errors import DataError, shown
from nmt.search.placeholders import Found, Kind, find_placeholders
from nmt.search.values import Request


def load_glossary(path: str | Path, *, reads: Callable[[str], str] = str) -> Matcher[str]:
    """Read a file of lines `source TAB target`; blank lines and those that begin with # are left out.

    `reads`: how the model's tokenizer normalises a text. Raises DataError naming file and line for any other line, and
    for a term with two translations.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{path}, line {number}"
        columns = [" ".join(column.split()) for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            raise DataError(f"{where}: {shown(line)} is not a term, a tab and its translation")
        term, target = canonical(columns[0]), columns[1]
        if terms.setdefault(term, target) != target:
            raise DataError(f"{where}: {shown(term)} has two translations, {shown(terms[term])} and {shown(target)}")
    if not terms:
        raise DataError(f"{path}: the glossary is empty; lines of a term, a tab and its translation are expected")
    return Matcher(terms, reads=reads)


_PRIVATE = range(0xE000, 0xF8FF)
"""Characters without a meaning; each represents one kept part until the text is converted to ids."""
_LETTER = "a"


@dataclass(frozen=True)
class Kept:
    """A stretch of a source line, and what must be in its translation for it."""

    text: str
    """What must be there."""
    kind: Kind
    origin: Span
    """The stretch of the line."""
    span: Span
    """The part of the model's input that represents it; empty for a mark."""
    spaces: tuple[str, str]
    """The white space before and after it in the line."""
    stands_alone: bool = False
    """Whether it is a mark between words, such as a line break."""
    partner: int | None = None
    """For a mark that others end or begin: the place of that in `KeptLine.kept`."""


@dataclass(frozen=True)
class KeptLine:
    """A line, and the text that the model reads for it."""

    line: str
    text: str
    kept: list[Kept]
    """In order."""
    origins: list[int]
    """Where in the line each character of the text was, and its end."""
    stand_in: str
    """The character of the text that represents a placeholder."""

    @cached_property
    def stand_ins(self) -> frozenset[int]:
        """The positions in the text that represent placeholders."""
        return frozenset(item.span[0] for item in self.kept if item.kind is Kind.WORD)

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate."""
        ends = [0, *(place for kept in self.kept if kept.kind is Kind.WORD for place in kept.span), len(self.text)]
        rest = (self.text[begin:end] for begin, end in zip(ends[::2], ends[1::2], strict=True))
        return any(letter.isalnum() for part in rest for letter in part)

    def original(self, span: Span) -> Span:
        """The stretch of the line that a stretch of the text comes from."""
        begin, end = span
        return self.origins[begin], self.origins[end - 1] + 1 if end > begin else self.origins[begin]


class Keeper:
    """Finds what is kept of lines, by the section `decoding` and what is asked for a line."""

    def __init__(self, tokenizer: Tokenizer, decoding: DecodingConfig) -> None:
        """Raises DataError for a glossary that cannot be read."""
        self._spaced = tokenizer.splits_at_spaces
        self._placeholders = decoding.placeholders
        path = decoding.glossary
        self._glossary = None if path is None else load_glossary(path, reads=tokenizer.source_form)

    def kept_of(self, request: Request) -> KeptLine | None:
        """What is kept of a line; None if nothing is.

        Raises DataError, which names the request, where the translation also has a prefix.
        """
        kept = keep(request.text, placeholders=self._placeholders, glossary=self._glossary, spaced=self._spaced)
        if kept is not None and request.prefix.strip():
            what = f"{kept.kept[0].text!r}, which is put into the translation afterwards"
            raise request.error(f"prefix: not allowed together with {what}")
        return kept


class _Item(NamedTuple):
    """A stretch of the line to keep, before the text is made."""

    span: Span
    kind: Kind
    text: str
    found: Found | None


def keep(line: str, *, placeholders: bool, glossary: Matcher[str] | None, spaced: bool = False) -> KeptLine | None:
    """What of `line` is kept, and the text that the model reads; None if nothing is.

    With `spaced` the tokenizer knows words by the spaces around them alone.
    """
    items = list(_items(line, placeholders=placeholders, glossary=glossary))
    if not items:
        return None
    stand_in = next((chr(code) for code in _PRIVATE if chr(code) not in line), None)
    if stand_in is None:
        raise DataError("a line has every character of Unicode's private use area: none is left for its placeholders")
    partners, nexts = _partners(items), _next_read(line, items)
    text: list[str] = []
    origins: list[int] = []
    kept = []
    end = 0
    for place, item in enumerate(items):
        begin, text_begin = item.span[0], len(text) + item.span[0] - end
        text += line[end:begin]
        origins += range(end, begin)
        end = item.span[1]
        before, after = _LETTER if text[-1:] == [stand_in] else "".join(text[-1:]), nexts[place]
        replacement = {Kind.WORD: stand_in, Kind.TERM: line[begin:end]}.get(item.kind, "")
        if item.kind is not Kind.TERM and _needs_space(item, before, after, spaced=spaced):
            text.append(" ")
            origins.append(begin)
            text_begin += 1
        text += replacement
        origins += range(begin, end) if item.kind is Kind.TERM else [begin] * len(replacement)
        span = (text_begin, len(text))
        if spaced and item.kind is Kind.WORD and after and not after.isspace():
            text.append(" ")
            origins.append(end)
        alone = item.found is not None and item.found.stands_alone
        kept.append(Kept(item.text, item.kind, item.span, span, _spaces(line, item.span), alone, partners.get(place)))
    text += line[end:]
    origins += range(end, len(line) + 1)
    return KeptLine(line, "".join(text), kept, origins, stand_in)


def _items(line: str, *, placeholders: bool, glossary: Matcher[str] | None) -> Iterator[_Item]:
    """Placeholders, and between them terms of the glossary."""
    end = 0
    found = find_placeholders(line) if placeholders else []
    for placeholder in [*found, None]:
        begin = len(line) if placeholder is None else placeholder.span[0]
        for (first, last), target in [] if glossary is None else glossary.find(line[end:begin]):
            yield _Item((end + first, end + last), Kind.TERM, target, None)
        if placeholder is not None:
            yield _Item(placeholder.span, placeholder.kind, line[slice(*placeholder.span)], placeholder)
            end = placeholder.span[1]


def _needs_space(item: _Item, before: str, after: str, *, spaced: bool) -> bool:
    """Whether the text before the item must be separated from its replacement, or from the text after a mark."""
    if item.kind is Kind.WORD:
        return spaced and bool(before) and not before.isspace()
    if spaced:
        return bool(before) and bool(after) and not before.isspace() and not after.isspace()
    assert item.found is not None
    return item.found.stands_alone and before.isalnum() and after.isalnum()


def _next_read(line: str, items: Sequence[_Item]) -> list[str]:
    """The character after each item and the marks that touch it, as the model reads it; a placeholder is a letter."""
    found: list[str] = []
    following: _Item | None = None
    for item in reversed(items):
        end = item.span[1]
        if following is None or following.span[0] != end or following.kind is Kind.TERM:
            found.append(line[end : end + 1])
        else:
            found.append(_LETTER if following.kind is Kind.WORD else found[-1])
        following = item
    return found[::-1]


def _spaces(line: str, span: Span) -> tuple[str, str]:
    """The white space before and after a stretch of the line."""
    begin, end = span
    while begin and line[begin - 1].isspace():
        begin -= 1
    while end < len(line) and line[end].isspace():
        end += 1
    return line[begin : span[0]], line[span[1] : end]


def _partners(items: Sequence[_Item]) -> dict[int, int]:
    """The end of each mark that has one, and the beginning of each end: places of items."""
    partners: dict[int, int] = {}
    open_tags: list[tuple[str, int]] = []
    count: Counter[str] = Counter()
    for place, item in enumerate(items):
        tag = "" if item.found is None else item.found.tag
        if tag and item.kind is Kind.OPENING:
            open_tags.append((tag, place))
            count[tag] += 1
        while tag and item.kind is Kind.CLOSING and count[tag]:
            name, opening = open_tags.pop()
            count[name] -= 1
            if name == tag:
                partners.update({opening: place, place: opening})
                break
    return partners
