"""Placeholders: parts of a line that are not language and must appear unchanged in its translation."""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from nmt.data.matching import UNSPACED
from nmt.data.tokenizer import Span

_BRACES = r"\{\{\{[^{}\r\n]*\}\}\}|[$#]?\{\{[^{}\r\n]*\}\}|[$#]\{[^{}\r\n]*\}|%?\{[^{}\s]*\}"
_PERCENT = r"(?<=\d)%[-+#0]?[A-Za-z]{2}|(?<=[A-Za-z\d])%(?:2[\dA-F]|[3-7][A-F]|[C-F][\dA-F])"
"""What is no conversion: the percentages 100%sure and 100%-ige, and %20 in what a browser has encoded."""
_PRINTF = (
    rf"(?!{_PERCENT})%(?:%|(?:\d+\$|\([\w.-]+\))?[+#0]*(?:-[+#0]*(?=[\d*]))?(?:\d+|\*)?(?:\.(?:\d+|\*))?"
    r"(?:hh?|ll?|[Lqjzt])?[bdiouxXeEfFgGaAcsSpnqv@])"
)
_ENTITY = r"&(?:[A-Za-z][A-Za-z\d]{1,31}|#\d{1,7}|#[xX][\dA-Fa-f]{1,6});"
_CJK = rf"{UNSPACED}\u1100-\u11ff\u3000-\u318f\uac00-\ud7ff\ufe30-\ufe4f\uff00-\uffef"
"""What stands beside an address without a space, and is no part of it: CJK letters and marks, and the like."""
_NO_BRACES = rf"(?!{_BRACES}|\{{%)"
_IN_URL = rf"""(?:{_BRACES}|{_NO_BRACES}[^\s<>"(){_CJK}]|\([^\s<>"(){_CJK}]*\))"""
_URL_END = rf"""(?:{_BRACES}|{_NO_BRACES}[^\s<>"().,;:!?'’”»…\]{_CJK}]|\([^\s<>"(){_CJK}]*\))"""
_URL = (
    r"(?<![A-Za-z\d_\u00c0-\u024f])(?:(?:https?|ftp)://|www\.)"
    rf"(?:[{UNSPACED}\uac00-\ud7ff][\w-]{{0,62}}\.){{0,9}}{_IN_URL}*{_URL_END}"
)
_MAIL = r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_NEXT = re.compile(rf"(?P<address>{_URL}|{_MAIL})|[<&{{$#%]", re.IGNORECASE)
_SYMBOL = re.compile(f"{_BRACES}|{_PRINTF}|{_ENTITY}")
_BROKEN = re.compile(f"(?=(?:{_PRINTF}|{_ENTITY}))[%&]")
_DELIMITED = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>", "<%": "%>", "{%": "%}", "{# ": "#}"}
_TAG = re.compile(r"<(?!/?unk>)/?([A-Za-z]\w*(?:[.-]\w+)*(?::\w+(?:[.-]\w+)*)?)(?=[\s/>])|<!([A-Za-z]+)(?=[\s>])")
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
    """A placeholder in a line, or several words that touch each other."""

    span: Span
    kind: Kind
    stands_alone: bool = False
    """Whether it is a mark between words, such as a line break."""
    tag: str = ""
    """The name of a tag that is one of a pair."""


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
        place, read, has_bare = match.end(), [], False
        while (end := _TAG_END.match(self._line, place)) is None:
            read.append(place)
            # A quotation is closed in a declaration as in a tag; other places are read in one way alone.
            part = None if place in self._failed else (_DECLARED if match[2] else _ATTRIBUTE).match(self._line, place)
            if part is None:
                self._failed.update(read)
                return begin
            place, has_bare = part.end(), has_bare or (not match[2] and part["bare"] is not None)
        is_glued = begin > 0 and self._line[begin - 1].isalnum()
        return begin if has_bare and is_glued else end.end()  # a<b and c>d


def _found(line: str, begin: int, end: int) -> Found:
    text, span = line[begin:end], (begin, end)
    if text.startswith("&"):
        return _entity(span, html.unescape(text) or " ", before=line[begin - 1 : begin], after=line[end : end + 1])
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


def _entity(span: Span, letter: str, *, before: str, after: str) -> Found:
    """An entity as what it stands for: a space, a bracket, a quotation mark, or a word."""
    category = unicodedata.category(letter[0])
    if letter.isspace() or category == "Pd":
        return Found(span, Kind.CLOSING, stands_alone=True)
    if category in ("Ps", "Pi") or (letter in "\"'" and not before.isalnum() and after.isalnum()):
        return Found(span, Kind.OPENING)
    is_mark = category in ("Pe", "Pf", "Cf") or letter in "\"'\u2026"
    return Found(span, Kind.CLOSING if is_mark else Kind.WORD)
