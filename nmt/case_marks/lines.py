"""Lines in capitals, for models that have hardly seen any: their small letters, and capitals again; as
nmt/light/src/case.c has it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nmt.case_marks.letters import LOWER, UPPER
from nmt.data.tokenizer import Span
from nmt.registry import IN_CAPITALS

_CAPITAL = re.compile(f"[{''.join(map(chr, LOWER))}]")
_SMALL = re.compile(f"[{''.join(map(chr, UPPER))}]")
_SMALL_OF = {
    capital: small for capital, small in LOWER.items() if len(chr(capital).encode()) == len(chr(small).encode())
}
"""Those of as many bytes: the engine changes a line where it is."""
_I = re.compile(r"(?<!\w)i(?!\w)")
_UPPER = UPPER | {0xDF: "SS"}


@IN_CAPITALS.register("is")
def in_capitals(line: str) -> bool:
    """Whether two words of a line, or more, have capitals, and none has a small letter."""
    return _SMALL.search(line) is None and sum(_CAPITAL.search(word) is not None for word in line.split()) > 1


@IN_CAPITALS.register("lower")
def small_letters(line: str, sentences: Sequence[Span], *, is_english: bool) -> str:
    """A line in small letters, as many as it has, except the first letter of each sentence and the English I."""
    small = line.translate(_SMALL_OF)
    found = list(_I.sub("I", small) if is_english else small)
    for begin, end in sentences:
        if (first := _CAPITAL.search(line, begin, end)) is not None:
            found[first.start()] = first[0]
    return "".join(found)


@IN_CAPITALS.register("upper")
def capitals(text: str) -> str:
    """A text in capitals; `ß` becomes `SS`."""
    return text.translate(_UPPER)
