"""A test text as people type it: capitals, no end marks, typing errors, and what the modifiers of plugins make."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from nmt.augmentation.modifiers import END_MARK, LONG_WORD, Modifier, NoEndMark, Pair
from nmt.registry import MODIFIERS, ROBUSTNESS

PLAIN: Final = "as it is"
_NAMES: Final = {
    "upper": "capitals",
    "title": "title case",
    "lower": "small letters",
    "no_end_mark": "no end mark",
    "punctuation": "other punctuation",
    "typos": "typing errors",
}
_SEED: Final = 1


class Changed(NamedTuple):
    """A test text in several forms."""

    sources: dict[str, list[str]]
    """The source as it is, then in other forms, by their names."""
    compared: Callable[[Sequence[str]], list[str]]
    """Translations and references as they are compared: in small letters, without end marks."""


@ROBUSTNESS.register("typed")
def typed(lines: Sequence[str], *, languages: tuple[str, str]) -> Changed:
    """Each line in each form, the same at every call; those of a modifier that reads the next pair are left out."""
    sources = {PLAIN: list(lines)}
    for name in [*_NAMES, *(name for name in MODIFIERS.names() if name not in _NAMES)]:
        modifier: Modifier = MODIFIERS.get(name)(languages)
        if not modifier.needs_next:
            shown = _NAMES.get(name, name)
            shown = f"{shown} (modifier)" if shown in sources else shown  # of a plugin
            sources[shown] = [_modified(modifier, i, line) for i, line in enumerate(lines)]
    sources["two letters exchanged"] = [_exchanged(i, line) for i, line in enumerate(lines)]
    return Changed(sources, lambda texts: [END_MARK.sub("", text).lower() for text in texts])


def _modified(modifier: Modifier, place: int, line: str) -> str:
    target = line if isinstance(modifier, NoEndMark) else ""  # which changes both sides or none
    return modifier(Pair(line, target), random.Random(f"{_SEED}:{place}"), None).source


def _exchanged(place: int, line: str) -> str:
    """Two neighbouring letters of one word of four letters or more, not its first or last, change places."""
    draw = random.Random(f"{_SEED}:{place}")
    places = [
        i
        for word in LONG_WORD.finditer(line)
        for i in range(word.start() + 1, word.end() - 2)
        if line[i] != line[i + 1]
    ]
    if not places:
        return line
    i = draw.choice(places)
    return line[:i] + line[i + 1] + line[i] + line[i + 2 :]
