"""Positions of tokens in a text, found by decoding, for tokenizers that do not give them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import accumulate

Span = tuple[int, int]
"""Begin and end, in characters."""

_WORD = re.compile(r"\S+")


def word_spans(text: str) -> list[Span]:
    """The words of a text: what whitespace separates."""
    return [match.span() for match in _WORD.finditer(text)]


def decoded_spans(decode: Callable[[Sequence[int]], str], ids: Sequence[int]) -> tuple[str, list[Span]]:
    """The text of `ids`, and the span that each id adds to it; an id that adds nothing has an empty span.

    Decodes each beginning of `ids`, so the time grows with the square of their number.
    """
    text = decode(ids)
    lengths = (min(len(decode(ids[:count])), len(text)) for count in range(1, len(ids) + 1))
    ends = list(accumulate(lengths, max))
    return text, list(zip([0, *ends], ends, strict=False))


def moved_spans(spans: Sequence[Span], *, text: str, line: str) -> list[Span]:
    """Spans of `text` as spans of `line`, of which `text` is a normalised form.

    If both have the same number of words, words correspond by position; otherwise positions are proportional.
    """
    if text == line:
        return list(spans)
    words, lines = word_spans(text), word_spans(line)
    if len(words) != len(lines) or not words:
        words, lines = [(0, len(text))], [(0, len(line))]

    def moved(place: int) -> int:
        index = next((i for i, (_, end) in enumerate(words) if place <= end), len(words) - 1)
        (begin, end), (first, last) = words[index], lines[index]
        return first + max(0, place - begin) * (last - first) // max(1, end - begin)

    return [(moved(begin), moved(end)) for begin, end in spans]


def word_around(text: str, span: Span) -> str:
    """The word around a span, which may begin with spaces; without punctuation at its ends if it has letters."""
    begin, end = span
    while begin + 1 < end and text[begin].isspace():
        begin += 1
    while begin and not text[begin - 1].isspace():
        begin -= 1
    while end < len(text) and not text[end].isspace():
        end += 1
    word = text[begin:end].strip()
    first = next((i for i, letter in enumerate(word) if letter.isalnum()), 0)
    last = next((i for i in reversed(range(len(word))) if word[i].isalnum()), len(word) - 1)
    return word[first : last + 1]
