"""Source lines that are too long to be translated at once, cut into parts: at sentence ends, else between words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nmt.data import Tokenizer
from nmt.data.spans import Span

# No more than three closing marks are looked for, so that the time is linear also for a line of nothing but dots.
_SENTENCE_END = re.compile(r"""[.!?…]["'”’»)\]]{0,3}\s+|[。！？｡][」』”’）]{0,3}""")
_WORD_END = re.compile(r"\s+")


class Part(NamedTuple):
    """What of a line is translated at once."""

    ids: list[int]
    text: str
    """That it is cut from; within a word that is too long, the whole word."""
    begin: int = 0
    """Where in the line `text` begins."""
    skipped: int = 0
    """Tokens of `text` that are in the parts before."""

    def spans(self, tokenizer: Tokenizer) -> list[Span]:
        """Where in the line its tokens stand."""
        found = tokenizer.source_spans(self.text)[self.skipped :][: len(self.ids)]
        return [(begin + self.begin, end + self.begin) for begin, end in found]


def parts_of(line: str, tokenizer: Tokenizer, *, longest: int) -> list[Part]:
    """A source line in parts of at most `longest` tokens each, in order; one part where it is no longer.

    A part ends with a sentence (after a full stop, a question or exclamation mark, also those of Chinese and Japanese),
    and has as many sentences as it can hold. Only a sentence that is itself too long is cut between words, and only a
    word that is too long within. Time is linear in the length of the line.
    """
    parts = _parts(line, tokenizer, begin=0, longest=longest, levels=(_sentences, _words))
    return [part for part in parts if part.ids]


def _parts(
    text: str, tokenizer: Tokenizer, *, begin: int, longest: int, levels: Sequence[Callable[[str], list[str]]]
) -> Iterator[Part]:
    if not levels:
        (ids,) = tokenizer.encode_source([text])
        yield from (Part(ids[start : start + longest], text, begin, start) for start in range(0, len(ids), longest))
        return
    groups = _packed(levels[0](text), tokenizer, longest=longest)
    for (place, group), ids in zip(groups, tokenizer.encode_source([group for _, group in groups]), strict=True):
        if len(ids) <= longest:
            yield Part(ids, group, begin + place)
        else:
            yield from _parts(group, tokenizer, begin=begin + place, longest=longest, levels=levels[1:])


def _packed(units: list[str], tokenizer: Tokenizer, *, longest: int) -> list[tuple[int, str]]:
    """Neighbouring units joined as long as they have at most `longest` tokens together, and where each group begins."""
    groups: list[tuple[int, list[str]]] = []
    room = place = 0
    for unit, ids in zip(units, tokenizer.encode_source(units), strict=True):
        if not groups or len(ids) > room:
            groups.append((place, []))
            room = longest
        groups[-1][1].append(unit)
        room -= len(ids)
        place += len(unit)
    texts = [(place, "".join(group)) for place, group in groups]
    return [(place + len(text) - len(text.lstrip()), text.strip()) for place, text in texts]


def _sentences(text: str) -> list[str]:
    return _cut(text, _SENTENCE_END)


def _words(text: str) -> list[str]:
    return _cut(text, _WORD_END)


def _cut(text: str, after: re.Pattern[str]) -> list[str]:
    """`text` in pieces that end with what `after` matches."""
    ends = [0, *(match.end() for match in after.finditer(text)), len(text)]
    return [text[start:end] for start, end in zip(ends, ends[1:], strict=False) if end > start]
