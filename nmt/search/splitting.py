"""What of a line is translated at once: its sentences, or all of it; what is too long in parts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from nmt.config.schema import DecodingConfig
from nmt.data import Tokenizer
from nmt.data.sentences import Lines, splitter_of
from nmt.data.spans import Span
from nmt.data.text import on_one_line
from nmt.errors import ConfigError
from nmt.light.options import AUTO, NONE
from nmt.light.splitter import Splitter

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
    """Cuts lines into what is translated at once, as nmt/light/src/parts.c does.

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
                _say_once(f"decoding.split: lines are not split into sentences: {error}")
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
            parts = [Part(ids, own, begin)] if whole or not self._too_long(ids) else self._cut(own, begin=begin)
            for number, part in enumerate(part for part in parts if part.ids):
                yield part._replace(sentence=sentence, space=" " if number else space)
            sentence += bool(ids)

    def _too_long(self, ids: list[int]) -> bool:
        return self._longest is not None and len(ids) > self._longest

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
            if self._too_long(ids):
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


_said: set[str] = set()


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        _log.warning("%s", message)
