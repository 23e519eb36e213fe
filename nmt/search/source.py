"""A line prepared for translation: the model's input, in one or several parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nmt.data import EOS, UNK, Tokenizer
from nmt.data.spans import Span, word_spans
from nmt.search.kept import Kept, KeptLine, seen
from nmt.search.placing import SourceUnits, source_units
from nmt.search.splitting import CutLine, Part


@dataclass(frozen=True)
class SourcePart:
    """What of a line is translated at once."""

    ids: list[int]
    """As the model reads them, without the end symbol."""
    part: Part
    text: str
    """The line, or the text that the model reads for it."""
    tokenizer: Tokenizer
    known: list[Span] | None = None
    """Where in the text its tokens are, if that has been found out."""
    kept: tuple[tuple[int, Kept], ...] = ()
    """What is kept of it, with its place among all that is kept of the line."""

    @cached_property
    def spans(self) -> list[Span]:
        """Where in the text its tokens are."""
        return self.part.spans(self.tokenizer) if self.known is None else self.known

    @cached_property
    def units(self) -> SourceUnits:
        """Its words and marks."""
        return source_units(self.text, self.spans, self.kept)


@dataclass(frozen=True)
class Source:
    """A line prepared for translation."""

    line: str
    parts: list[SourcePart]
    kept: KeptLine | None = None
    several: bool = False
    """See `CutLine.several`."""

    @cached_property
    def words(self) -> list[Span]:
        """The words of the line, which white space separates."""
        return word_spans(self.line)

    def original(self, spans: Sequence[Span]) -> list[Span]:
        """Spans of the line from spans of the model's input."""
        return list(spans) if self.kept is None else [self.kept.original(span) for span in spans]

    @property
    def sentences(self) -> int:
        """How many sentences are translated by themselves."""
        return len({part.part.sentence for part in self.parts})

    def space(self, number: int) -> str:
        """The white space before the translation of a part: what is between the sentences in the line, of which tags
        and the like have their own places."""
        part = self.parts[number].part
        if not number or self.kept is None or part.sentence == self.parts[number - 1].part.sentence:
            return part.space
        before = self.parts[number - 1].part
        begin, end = self.kept.original((before.begin + len(before.text), part.begin))
        between = self.line[begin:end] if part.begin > before.begin + len(before.text) else ""
        return "".join(letter for letter in between if letter.isspace()) or ("" if between else part.space)

    @property
    def unknown(self) -> int:
        """Tokens that are not in the vocabulary, not counting placeholders."""
        stand_ins = frozenset[int]() if self.kept is None else self.kept.stand_ins
        return sum(
            token == UNK and (part.known is None or part.known[place][0] not in stand_ins)
            for part in self.parts
            for place, token in enumerate(part.ids)
        )

    @property
    def pieces(self) -> tuple[str, ...]:
        """Its tokens as the model reads them."""
        return tuple(name for part in self.parts for name in part.tokenizer.source_tokens([*part.ids, EOS]))


def source_of(line: str, cut: CutLine, kept: KeptLine | None, tokenizer: Tokenizer) -> Source:
    """A line prepared for translation, in its parts."""
    if kept is None:
        return Source(line, [SourcePart(part.ids, part, line, tokenizer) for part in cut.parts], several=cut.several)
    read = [(ids, spans, part) for part in cut.parts for ids, spans in [seen(kept, part, tokenizer)] if ids]
    begins = [spans[0][0] for _, spans, _ in read]
    own: list[list[tuple[int, Kept]]] = [[] for _ in read]
    for place, item in enumerate(kept.kept):
        own[max(0, bisect_right(begins, item.span[0]) - 1)].append((place, item))
    found = [
        SourcePart(ids, part, kept.text, tokenizer, spans, tuple(items))
        for (ids, spans, part), items in zip(read, own, strict=True)
    ]
    return Source(line, found, kept, cut.several)
