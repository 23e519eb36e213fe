"""Source lines with kept parts: placeholders and terms of a glossary, and what the model reads in their place."""

from __future__ import annotations

import html
import html.entities
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from nmt.data.matching import UNSPACED, canonical
from nmt.data.text import read_lines
from nmt.data.tokenizer import Span
from nmt.errors import DataError, shown
from nmt.kept_text.matcher import Matcher
from nmt.search.source import Part

_BRACES = r"\{\{\{[^{}\r\n]*\}\}\}|[$#]?\{\{[^{}\r\n]*\}\}|[$#]\{[^{}\r\n]*\}|%?\{[^{}\s]*\}"
_PERCENT = r"(?<=[0-9])%[-+#0]?[A-Za-z]{2}|(?<=[A-Za-z0-9])%(?:2[0-9A-F]|[3-7][A-F]|[C-F][0-9A-F])"
"""What is no conversion: the percentages 100%sure and 100%-ige, and %20 in what a browser has encoded."""
_PRINTF = (
    rf"(?!{_PERCENT})%(?:%|(?:[0-9]+\$|\([\w.-]+\))?[+#0]*(?:-[+#0]*(?=[0-9*]))?(?:[0-9]+|\*)?(?:\.(?:[0-9]+|\*))?"
    r"(?:hh?|ll?|[Lqjzt])?[bdiouxXeEfFgGaAcsSpnqv@])"
)
_ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});"
_CJK = rf"{UNSPACED}\u1100-\u11ff\u3000-\u318f\uac00-\ud7ff\ufe30-\ufe4f\uff00-\uffef"
"""What stands beside an address without a space, and is no part of it: CJK letters and marks, and the like."""
_NO_BRACES = rf"(?!{_BRACES}|\{{%)"
_IN_URL = rf"""(?:{_BRACES}|{_NO_BRACES}[^\s<>"(){_CJK}]|\([^\s<>"(){_CJK}]*\))"""
_URL_END = rf"""(?:{_BRACES}|{_NO_BRACES}[^\s<>"().,;:!?'’”»…\]{_CJK}]|\([^\s<>"(){_CJK}]*\))"""
_URL = (
    r"(?<![A-Za-z0-9_\u00c0-\u024f])(?:(?ai:https?|ftp)://|(?ai:www)\.)"
    rf"(?:[{UNSPACED}\uac00-\ud7ff][\w-]{{0,62}}\.){{0,9}}{_IN_URL}*{_URL_END}"
)
_MAIL = r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_NEXT = re.compile(rf"(?P<address>{_URL}|{_MAIL})|[<&{{$#%]")
_SYMBOL = re.compile(f"{_BRACES}|{_PRINTF}|{_ENTITY}")
_BROKEN = re.compile(f"(?=(?:{_PRINTF}|{_ENTITY}))[%&]")
_DELIMITED = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>", "<%": "%>", "{%": "%}", "{# ": "#}"}
_TAG = re.compile(r"<(?!/?unk>)/?([A-Za-z]\w*(?:[.-]\w+)*(?::\w+(?:[.-]\w+)*)?)(?=[\s/>])|<!([A-Za-z]+)(?=[\s>])")
_END_TAG = re.compile(r"</([A-Za-z][\w:.-]*)")
_TAG_END = re.compile(r"[^\S\r\n]*/?[^\S\r\n]*>")
_VALUE = rf"""(?:"[^"\r\n]*"|'[^'\r\n]*'|{_BRACES}|[^\s"'<>=`][^\s"'<>`]*)"""
_ATTRIBUTE = re.compile(
    rf"""[^\S\r\n]*(?:(?P<bare>[\w@:#*.-]+)(?=[\s/>{{])|[^\s"'<>=]+[^\S\r\n]*=[^\S\r\n]*{_VALUE}"""
    rf"""|{_BRACES}|\{{%[^\r\n%]*%\}})"""
)
_DECLARED = re.compile(r"""[^\S\r\n]+(?:[^\s"'<>]+|"[^"\r\n]*"|'[^'\r\n]*')""")
_CODE = re.compile(r"\{%[-+~]?\s*(end)?(\w+)|\{\{([#^/])\s*(\w+)")
"""What begins or ends a part of a template: `{% if %}` and `{% endif %}`, `{{#each}}` and `{{/each}}`."""
_STANDING_ALONE = frozenset(("area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"))
"""Tags of HTML that have no end tag."""


class Kind(Enum):
    """How a stretch of the source that is kept stands in its sentence."""

    WORD = "word"
    """As a word: the model reads a symbol in its place, for which it writes something that can be replaced."""
    TERM = "term"
    """As ordinary words: the model reads them, and their translation is replaced."""
    OPENING = "opening"
    """As a mark before the word that follows; the model does not read it."""
    CLOSING = "closing"
    """As a mark after the word before; the model does not read it."""


class Found(NamedTuple):
    """A placeholder in a line, several words of such that touch each other, or a term of a glossary."""

    span: Span
    kind: Kind
    stands_alone: bool = False
    """Whether it is a mark between words, such as a line break."""
    tag: str = ""
    """The name of a tag that is one of a pair."""
    text: str = ""
    """What must be in the translation for a term; a placeholder stays as it is."""


def find_placeholders(line: str) -> list[Found]:
    """The placeholders of a line, in order; those that stand for words and touch each other are one.

    They are `{name}`, `{{ name }}`, `{% if %}`, `${name}`, `#{name}`, `%{name}`, conversions of printf (`%s`, `%1$s`,
    `%(name)s`, `%.2f`, `%%`; none has a space in it), tags with any attributes, comments, CDATA sections, instructions
    and declarations of markup, entities (`&nbsp;`), addresses that begin with http://, https://, ftp:// or www., and
    e-mail addresses. Time is linear in the length of the line.
    """
    found: list[Found] = []
    for begin, end in _spans(line):
        new = _found(line, begin, end)
        if found and found[-1].span[1] == begin and found[-1].kind is new.kind is Kind.WORD:
            new = new._replace(span=(found.pop().span[0], end))
        found.append(new)
    return found


def count_placeholders(text: str) -> Counter[str]:
    """How often each placeholder is in a text."""
    return Counter(text[begin:end] for begin, end in _spans(text))


def broken_placeholders(text: str) -> str:
    """`text` changed so that it contains no placeholder and no beginning of one, whatever follows after a space."""
    text = re.sub(r"[{}<>@]", "", text).replace("://", ": //")
    text = re.sub(r"www\.", lambda match: f"{match[0][:-1]} .", text, flags=re.IGNORECASE)
    return _BROKEN.sub(r"\g<0> ", text)


def _spans(line: str) -> Iterator[Span]:
    """Where placeholders are."""
    scanner, place = _Scanner(line), 0
    while (match := _NEXT.search(line, place)) is not None:
        begin, end = match.span()
        if match["address"] is None:
            end = scanner.end(begin)
        if end > begin:
            yield begin, end
        place = max(end, begin + 1)


class _Scanner:
    """Finds where what begins at a place of a line ends; what has been read once is not read again."""

    def __init__(self, line: str) -> None:
        self._line = line
        self._next: dict[str, int] = {}
        self._failed: set[int] = set()
        self._ends = {match[1].lower(): match.start() for match in _END_TAG.finditer(line)}

    def end(self, begin: int) -> int:
        """Where the markup, symbol or entity that begins at a place ends; `begin` if there is none."""
        for opening, closing in _DELIMITED.items():
            if self._line.startswith(opening, begin):
                end = self._after(closing, begin + len(opening))
                if end <= self._after("\n", begin) and end <= self._after("\r", begin):
                    return end
        if self._line[begin] == "<":
            return self._tag_end(begin)
        symbol = _SYMBOL.match(self._line, begin)
        return begin if symbol is None else symbol.end()

    def _after(self, mark: str, place: int) -> int:
        """The end of the next such mark, or a place after the line and its end."""
        if self._next.get(mark, 0) - len(mark) < place:
            found = self._line.find(mark, place)
            self._next[mark] = len(self._line) + len(mark) + 1 if found < 0 else found + len(mark)
        return self._next[mark]

    def _tag_end(self, begin: int) -> int:
        """Attribute by attribute; from where another tag has found no end, neither does this one."""
        match = _TAG.match(self._line, begin)
        if match is None:
            return begin
        place, read, name, has_bare = match.end(), [], (match[1] or "").lower(), False
        is_sure = name in _STANDING_ALONE or self._ends.get(name, 0) > begin
        while (end := _TAG_END.match(self._line, place)) is None:
            read.append(place)
            # A quotation is closed in a declaration as in a tag; other places are read in one way alone.
            part = None if place in self._failed else (_DECLARED if match[2] else _ATTRIBUTE).match(self._line, place)
            if part is None:
                self._failed.update(read)
                return begin
            place, has_bare = part.end(), has_bare or (not match[2] and part["bare"] is not None)
            is_sure = is_sure or part[0][-1] in "\"'"
        is_glued = begin > 0 and self._line[begin - 1].isalnum()
        return begin if has_bare and is_glued and not is_sure else end.end()  # a<b and c>d


def _found(line: str, begin: int, end: int) -> Found:
    """What a placeholder is in its sentence: a word, or a mark before or after one."""
    text, span = line[begin:end], (begin, end)
    if text.startswith("&"):
        # An entity is what it stands for: a space, a bracket, a quotation mark, or a word.
        is_known = text[1] == "#" or text[1:] in html.entities.html5
        letter, before, after = (
            (html.unescape(text) or " ") if is_known else text,
            line[begin - 1 : begin],
            line[end : end + 1],
        )
        category = unicodedata.category(letter[0])
        if letter.isspace() or category == "Pd":
            return Found(span, Kind.CLOSING, stands_alone=True)
        if category in ("Ps", "Pi") or (letter in "\"'" and not before.isalnum() and after.isalnum()):
            return Found(span, Kind.OPENING)
        is_mark = category in ("Pe", "Pf", "Cf") or letter in "\"'\u2026"
        return Found(span, Kind.CLOSING if is_mark else Kind.WORD)
    if (code := _CODE.match(text)) is not None:
        is_end = code[1] is not None or code[3] == "/"
        return Found(span, Kind.CLOSING if is_end else Kind.OPENING, tag=f"{{{code[2] or code[4]}")
    if text.startswith("<![CDATA[") or not text.startswith(("<", "{# ")):
        return Found(span, Kind.WORD)
    name = _TAG.match(text)
    tag = "" if name is None or name[1] is None else name[1].lower()
    if not tag or text.endswith("/>") or tag in _STANDING_ALONE:
        return Found(span, Kind.CLOSING, stands_alone=bool(tag))
    return Found(span, Kind.CLOSING if text.startswith("</") else Kind.OPENING, tag=tag)


def load_glossary(path: str | Path, text: str | None = None, *, reads: Callable[[str], str] = str) -> Matcher[str]:
    """Read a file of lines `source TAB target`, or the `text` of one that `path` is the name of; blank lines and those
    that begin with # are left out.

    `reads`: how the model's tokenizer normalises a text. Raises DataError naming file and line for any other line, and
    for a term with two translations.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(read_lines(path if text is None else io.StringIO(text)), start=1):
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
    """What the model reads for a line, and what is kept of it."""

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

    def original(self, span: Span) -> Span:
        """The stretch of the line that a stretch of the text comes from."""
        begin, end = span
        return self.origins[begin], self.origins[end - 1] + 1 if end > begin else self.origins[begin]

    def read_as(self, text: str) -> KeptLine:
        """The same with as many other letters for the model to read."""
        return replace(self, text=text)

    def space(self, line: str, before: Part, part: Part) -> str:
        """The white space before the translation of a part: what is between the sentences in the line, of which tags
        and the like have their own places."""
        if part.sentence == before.sentence:
            return part.space
        ending = before.begin + len(before.text)
        begin, end = self.original((ending, part.begin))
        between = line[begin:end] if part.begin > ending else ""
        return "".join(letter for letter in between if letter.isspace()) or ("" if between else part.space)

    def symbols(self, part: Part) -> int:
        """How many unknown symbols of a part represent placeholders."""
        return sum(begin in self.stand_ins for begin, _ in part.known or ())


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
    for place, (item, after) in enumerate(zip(items, nexts, strict=True)):
        text += line[end : item.span[0]]
        origins += range(end, item.span[0])
        begin, end = item.span
        before = _LETTER if text[-1:] == [stand_in] else "".join(text[-1:])
        if _needs_space(item, before, after, spaced=spaced):
            text.append(" ")
            origins.append(begin)
        read = len(text)
        if item.kind is Kind.TERM:
            text += line[begin:end]
            origins += range(begin, end)
        elif item.kind is Kind.WORD:
            text.append(stand_in)
            origins.append(begin)
        own, spaces = item.text or line[begin:end], _spaces(line, item.span)
        kept.append(Kept(own, item.kind, item.span, (read, len(text)), spaces, item.stands_alone, partners.get(place)))
        if spaced and item.kind is Kind.WORD and after and not after.isspace():
            text.append(" ")
            origins.append(end)
    text += line[end:]
    origins += range(end, len(line) + 1)
    return KeptLine("".join(text), kept, origins, stand_in)


def _items(line: str, *, placeholders: bool, glossary: Matcher[str] | None) -> Iterator[Found]:
    """Placeholders, and between them terms of the glossary."""
    end = 0
    for placeholder in [*(find_placeholders(line) if placeholders else []), None]:
        begin = len(line) if placeholder is None else placeholder.span[0]
        for (first, last), target in [] if glossary is None else glossary.find(line[end:begin]):
            yield Found((end + first, end + last), Kind.TERM, text=target)
        if placeholder is not None:
            yield placeholder
            end = placeholder.span[1]


def _needs_space(item: Found, before: str, after: str, *, spaced: bool) -> bool:
    """Whether the text before the item must be separated from its replacement, or from the text after a mark."""
    if item.kind is Kind.TERM:
        return False
    if item.kind is Kind.WORD:
        return spaced and bool(before) and not before.isspace()
    if spaced:
        return bool(before) and bool(after) and not before.isspace() and not after.isspace()
    return item.stands_alone and before.isalnum() and after.isalnum()


def _next_read(line: str, items: Sequence[Found]) -> list[str]:
    """The character after each item and the marks that touch it, as the model reads it; a placeholder is a letter."""
    found: list[str] = []
    following: Found | None = None
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


def _partners(items: Sequence[Found]) -> dict[int, int]:
    """The end of each mark that has one, and the beginning of each end: places of items."""
    partners: dict[int, int] = {}
    open_tags: list[tuple[str, int]] = []
    count: Counter[str] = Counter()
    for place, item in enumerate(items):
        if item.tag and item.kind is Kind.OPENING:
            open_tags.append((item.tag, place))
            count[item.tag] += 1
        while item.tag and item.kind is Kind.CLOSING and count[item.tag]:
            name, opening = open_tags.pop()
            count[name] -= 1
            if name == item.tag:
                partners.update({opening: place, place: opening})
                break
    return partners
