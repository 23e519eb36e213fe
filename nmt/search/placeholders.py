"""Placeholders: parts of a line that are not language and must appear unchanged in its translation."""

from __future__ import annotations

import re
from collections import Counter
from enum import Enum
from typing import NamedTuple

from nmt.data.spans import Span

_BRACES = r"\{\{[^{}\r\n]*\}\}|[$#%]?\{[^{}\s]*\}"
_TAG = r"</?(?!unk>)[A-Za-z][^<>\r\n]*>"
_IN_URL = r"""[^\s<>"()。，、！？；：（）「」]|\([^\s<>"()]*\)"""
_URL_END = r"""[^\s<>"().,;:!?'’”»…\]。，、！？；：（）「」]|\([^\s<>"()]*\)"""
_URL = rf"(?<!\w)(?:(?:https?|ftp)://|www\.)(?:{_IN_URL})*(?:{_URL_END})"
_MAIL = r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+"
_PLACEHOLDER = re.compile("|".join((_BRACES, _TAG, _URL, _MAIL)), re.IGNORECASE)
_TAG_NAME = re.compile(r"</?([A-Za-z][^\s/>]*)")
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
    """A placeholder in a line, or several that touch each other."""

    span: Span
    kind: Kind
    stands_alone: bool
    """Whether it is a mark between words, such as a line break."""
    tags: tuple[str, ...] = ()
    """Names of the tags in it."""


def find_placeholders(line: str) -> list[Found]:
    """The placeholders of a line, in order; those that touch each other are one.

    They are `{name}`, `{{ name }}`, `${name}`, `#{name}`, `%{name}`, tags as `<b>`, `</b>`, `<br/>`, web addresses that
    begin with http://, https://, ftp:// or www., and e-mail addresses.
    """
    found: list[Found] = []
    for match in _PLACEHOLDER.finditer(line):
        new = _found(match[0], match.span())
        if found and found[-1].span[1] == new.span[0]:
            new = _joined(found.pop(), new)
        found.append(new)
    return found


def count_placeholders(text: str) -> Counter[str]:
    """How often each placeholder is in a text."""
    return Counter(match[0] for match in _PLACEHOLDER.finditer(text))


def broken_placeholders(text: str) -> str:
    """`text` changed so that it contains no placeholder and no beginning of one, whatever follows after a space."""
    text = re.sub(r"[{}<>@]", "", text).replace("://", ": //")
    return re.sub(r"www\.", lambda match: f"{match[0][:-1]} .", text, flags=re.IGNORECASE)


def _found(text: str, span: Span) -> Found:
    if not text.startswith("<"):
        return Found(span, Kind.WORD, stands_alone=False)
    name = _TAG_NAME.match(text)
    assert name is not None
    tag = name[1].lower()
    stands_alone = text.endswith("/>") or tag in _STANDING_ALONE
    is_closing = text.startswith("</") or stands_alone
    return Found(span, Kind.CLOSING if is_closing else Kind.OPENING, stands_alone, () if stands_alone else (tag,))


def _joined(first: Found, second: Found) -> Found:
    kinds = {first.kind, second.kind}
    kind = Kind.WORD if Kind.WORD in kinds else first.kind if len(kinds) == 1 else Kind.CLOSING
    tags = first.tags + second.tags if len(kinds) == 1 else ()
    alone = first.stands_alone and second.stands_alone
    return Found((first.span[0], second.span[1]), kind, alone, tags)
