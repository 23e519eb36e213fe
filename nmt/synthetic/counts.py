"""What is counted while a corpus is translated, kept from one start to the next: nothing wrong leaves silently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from nmt.errors import counted
from nmt.search.values import AT_LIMIT, LONGER, NOT_FINITE, SEVERAL, SPLIT
from nmt.synthetic.choice import Made
from nmt.synthetic.texts import Line

EXAMPLES: Final = 3
"""Places that are named of each kind of line."""
NOT_UTF8: Final = "not_utf8"
_SAID: Final = MappingProxyType(
    {
        NOT_FINITE: "without a translation of finite probability",
        AT_LIMIT: "left without a translation, because the search reached the length limit",
        LONGER: "longer than any in training",
        SEVERAL: "of several sentences translated as a whole (--split sentences translates each by itself)",
        SPLIT: "translated in parts (decoding.split_long)",
        NOT_UTF8: "not UTF-8",
    }
)


@dataclass
class Counts:
    """Of lines read and pairs written so far."""

    lines: int = 0
    empty: int = 0
    """Lines of nothing but white space, or that the tokenizer makes nothing of."""
    pairs: int = 0
    halves: int = 0
    """Pairs with an empty side, which training skips."""
    noted: dict[str, int] = field(default_factory=dict)
    """Lines with a note, by the words of `nmt-translate --format jsonl`."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """The places of the first of them."""

    def add(self, line: Line, made: Made, pairs: Sequence[tuple[str, str]]) -> None:
        """Count a line and the pairs made of it."""
        self.lines += 1
        self.empty += made.source_tokens == 0
        self.pairs += len(pairs)
        self.halves += sum(1 for pair in pairs if not all(side.strip() for side in pair))
        notes = [(note, line.place) for note in made.notes] + [(NOT_UTF8, line.not_utf8)] * bool(line.not_utf8)
        for note, where in notes:
            self.noted[note] = self.noted.get(note, 0) + 1
            examples = self.examples.setdefault(note, [])
            if len(examples) < EXAMPLES:
                examples.append(where)

    @property
    def failed(self) -> int:
        """Lines without a translation."""
        return self.noted.get(NOT_FINITE, 0)

    def problems(self) -> list[str]:
        """The problems, with the places of the first lines that have them."""
        said = []
        for note, what in _SAID.items():
            if count := self.noted.get(note, 0):
                more = "; ..." if count > EXAMPLES else ""
                said.append(f"{counted(count, 'line')} {what} ({'; '.join(self.examples[note])}{more})")
        return said

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Counts:
        """Read back `to_json`; TypeError for anything else."""
        return cls(**values)
