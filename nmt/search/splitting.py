"""Source lines that are too long to be translated at once, cut into parts: at sentence ends, else between words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from nmt.data import Tokenizer

# No more than three closing marks are looked for, so that the time is linear also for a line of nothing but dots.
_SENTENCE_END = re.compile(r"""[.!?…]["'”’»)\]]{0,3}\s+|[。！？｡][」』”’）]{0,3}""")
_WORD_END = re.compile(r"\s+")


def parts_of(line: str, tokenizer: Tokenizer, *, longest: int) -> list[list[int]]:
    """The ids of a source line in parts of at most `longest` tokens each, in order; one part where it is no longer.

    A part ends with a sentence (after a full stop, a question or exclamation mark, also those of Chinese and Japanese),
    and has as many sentences as it can hold. Only a sentence that is itself too long is cut between words, and only a
    word that is too long within. Time is linear in the length of the line.
    """
    return [ids for ids in _parts(line, tokenizer, longest=longest, levels=(_sentences, _words)) if ids]


def _parts(
    text: str, tokenizer: Tokenizer, *, longest: int, levels: Sequence[Callable[[str], list[str]]]
) -> Iterator[list[int]]:
    if not levels:
        (ids,) = tokenizer.encode_source([text])
        yield from (ids[start : start + longest] for start in range(0, len(ids), longest))
        return
    groups = _packed(levels[0](text), tokenizer, longest=longest)
    for group, ids in zip(groups, tokenizer.encode_source(groups), strict=True):
        if len(ids) <= longest:
            yield ids
        else:
            yield from _parts(group, tokenizer, longest=longest, levels=levels[1:])


def _packed(units: list[str], tokenizer: Tokenizer, *, longest: int) -> list[str]:
    """Neighbouring units joined as long as they have at most `longest` tokens together."""
    groups: list[list[str]] = []
    room = 0
    for unit, ids in zip(units, tokenizer.encode_source(units), strict=True):
        if not groups or len(ids) > room:
            groups.append([])
            room = longest
        groups[-1].append(unit)
        room -= len(ids)
    return ["".join(group).strip() for group in groups]


def _sentences(text: str) -> list[str]:
    return _cut(text, _SENTENCE_END)


def _words(text: str) -> list[str]:
    return _cut(text, _WORD_END)


def _cut(text: str, after: re.Pattern[str]) -> list[str]:
    """`text` in pieces that end with what `after` matches."""
    ends = [0, *(match.end() for match in after.finditer(text)), len(text)]
    return [text[start:end] for start, end in zip(ends, ends[1:], strict=False) if end > start]
