"""A line prepared for translation: what of it is translated at once, as the model reads it."""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from nmt.config.schema import DecodingConfig
from nmt.data import EOS, UNK, Tokenizer
from nmt.data.sentences import Lines, splitter_of
from nmt.data.tokenizer import Span, on_one_line, word_spans
from nmt.errors import ConfigError, say_once
from nmt.light.options import AUTO, NONE
from nmt.light.splitter import Splitter
from nmt.search.kept import Kept, KeptLine
from nmt.search.placing import SourceUnits, source_units

_log = logging.getLogger(__name__)

_WORD_END = re.compile(r"\s+")
_LEVELS: Final = ("sentences", "words", "tokens")


class Part(NamedTuple):
    """What of a line is translated at once."""

    ids: list[int]
    text: str
    """That it is cut from; within a word that is too long, the whole word."""
    begin: int = 0
    """Where in the line `text` begins."""
    skipped: int = 0
    """Tokens of `text` that are in the parts before."""
    sentence: int = 0
    """Which of the line's sentences it belongs to, from 0; of a line that is not split all of it counts as one."""
    space: str = ""
    """White space before its translation."""

    def spans(self, tokenizer: Tokenizer) -> list[Span]:
        """Where in the line its tokens stand."""
        found = tokenizer.source_spans(self.text)[self.skipped :][: len(self.ids)]
        return [(begin + self.begin, end + self.begin) for begin, end in found]


class CutLine(NamedTuple):
    """What became of a line."""

    parts: list[Part]
    several: bool
    """Whether it has several sentences but is translated as a whole, because it is not known what the model was trained
    on."""


class Parts:
    """Cuts lines into what is translated at once, as nmt/light/src/engine.c does.

    By `decoding.split` each sentence is translated by itself: always, never, or where the training text had one
    sentence a line. Where that is not known, in models of versions before 0.3.0, lines of more tokens than any in
    training are split. Then what has more than `decoding.split_long` tokens is cut: after sentences, of which a part
    has as many as it can hold, else between words, else within. Time is linear in the length of a line.
    """

    def __init__(self, tokenizer: Tokenizer, decoding: DecodingConfig, lines: Lines | None = None) -> None:
        """Without `lines` (a model without text of its own) `auto` translates lines as a whole.

        Raises ConfigError where sentences are asked for and the splitter, which is C, cannot be compiled.
        """
        self._tokenizer = tokenizer
        self._longest = decoding.split_long
        self._lines = lines or Lines()
        self._splitter: Splitter | None = None
        self._always, self._joins = False, " "
        self._splits = decoding.split != NONE and (decoding.split != AUTO or lines is not None)
        if not (self._splits or self._longest):
            return
        try:
            self._splitter = splitter_of(self._lines.source_language)
        except ConfigError as error:
            if decoding.split not in (AUTO, NONE):
                raise ConfigError(f"decoding.split: {error}") from None
            if self._splits:
                say_once(_log, f"decoding.split: lines are not split into sentences: {error}")
            self._splits = False
            return
        self._always = decoding.split == "sentences"
        if decoding.split == AUTO and self._lines.several is not None:
            self._always = self._splits = self._splitter.splits(self._lines.several)
        self._joins = " " if self._splitter.is_spaced(self._lines.target_language) else ""

    def of(self, texts: Sequence[str], *, whole: Sequence[bool] | None = None) -> list[CutLine]:
        """The parts of each of some texts; those without tokens are left out.

        `whole`: of each text whether its sentences are not cut, however long they are.
        """
        bounds = [self._splitter.bounds(text) if self._splits and self._splitter is not None else [] for text in texts]
        several = [len(own) > 1 for own in bounds]
        chosen = [
            own if many and self._always else [(0, len(text))]
            for text, own, many in zip(texts, bounds, several, strict=True)
        ]
        units = [text[begin:end] for text, own in zip(texts, chosen, strict=True) for begin, end in own]
        encoded = iter(self._tokenizer.encode_source(units))
        found = []
        for place, (text, own, many) in enumerate(zip(texts, chosen, several, strict=True)):
            ids = [next(encoded) for _ in own]
            if many and not self._always and 0 < self._lines.longest < len(ids[0]):
                own = bounds[place]
                ids = self._tokenizer.encode_source([text[begin:end] for begin, end in own])
            parts = list(self._parts(text, own, ids, whole=whole is not None and whole[place]))
            found.append(CutLine(parts, many and len(own) == 1))
        return found

    def _parts(self, text: str, bounds: Sequence[Span], encoded: Sequence[list[int]], *, whole: bool) -> Iterator[Part]:
        """The parts of a line in sentences."""
        last = sentence = 0
        for (begin, end), ids in zip(bounds, encoded, strict=True):
            space = on_one_line(text[last:begin]) or self._joins if last else ""
            last, own = end, text[begin:end]
            if not ids:
                continue
            if whole or self._longest is None or len(ids) <= self._longest:
                yield Part(ids, own, begin, sentence=sentence, space=space)
            else:
                for part in self._cut(own, begin=begin):
                    if part.ids:
                        yield part._replace(sentence=sentence, space=space)
                        space = " "
            sentence += 1

    def _cut(self, text: str, *, begin: int, level: int = 0) -> Iterator[Part]:
        """The parts of a sentence, or line, that is too long."""
        assert self._longest is not None
        if _LEVELS[level] == "tokens":
            (ids,) = self._tokenizer.encode_source([text])
            for start in range(0, len(ids), self._longest):
                yield Part(ids[start : start + self._longest], text, begin, start)
            return
        groups = self._packed(self._units(text, level))
        for (place, group), ids in zip(
            groups, self._tokenizer.encode_source([group for _, group in groups]), strict=True
        ):
            if len(ids) > self._longest:
                yield from self._cut(group, begin=begin + place, level=level + 1)
            else:
                yield Part(ids, group, begin + place)

    def _units(self, text: str, level: int) -> list[str]:
        """`text` in sentences or words, with the white space behind each."""
        if _LEVELS[level] == "words":
            begins = [match.end() for match in _WORD_END.finditer(text)]
        else:
            begins = [] if self._splitter is None else [begin for begin, _ in self._splitter.bounds(text)[1:]]
        ends = [0, *begins, len(text)]
        return [text[start:end] for start, end in zip(ends, ends[1:], strict=False) if end > start]

    def _packed(self, units: list[str]) -> list[tuple[int, str]]:
        """Neighbouring units joined as long as they have at most as many tokens as a part, and where each begins."""
        assert self._longest is not None
        groups: list[tuple[int, list[str]]] = []
        room = place = 0
        for unit, ids in zip(units, self._tokenizer.encode_source(units), strict=True):
            if not groups or len(ids) > room:
                groups.append((place, []))
                room = self._longest
            groups[-1][1].append(unit)
            room -= len(ids)
            place += len(unit)
        texts = [(place, "".join(group)) for place, group in groups]
        return [(place + len(text) - len(text.lstrip()), text.strip()) for place, text in texts]


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


def seen(kept: KeptLine, part: Part, tokenizer: Tokenizer) -> tuple[list[int], list[Span]]:
    """The ids of a part of `kept.text` with the unknown symbol for each placeholder, and their positions in the text.

    The model has no expectation about the unknown symbol, and the attention shows its translation.
    """
    stand_ins = kept.stand_ins
    ids: list[int] = []
    spans: list[Span] = []
    last = -1
    for token, (begin, end) in zip(part.ids, part.spans(tokenizer), strict=True):
        inside = next((place for place in range(begin, max(end, begin + 1)) if place in stand_ins), None)
        if inside is None:
            ids.append(token)
            spans.append((begin, end))
        elif inside != last:
            # A token of nothing but the space before it is a part of it.
            if spans and kept.text[slice(*spans[-1])].isspace():
                del ids[-1], spans[-1]
            ids.append(UNK)
            spans.append((inside, inside + 1))
            last = inside
    return ids, spans
