"""A line prepared for translation: what of it is translated at once, as the model reads it, and its words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Final, NamedTuple

from nmt.config.schema import DecodingConfig
from nmt.data import EOS, UNK, Tokenizer
from nmt.data.capitals import in_capitals, small_letters
from nmt.data.matching import MARKS, UNSPACED, is_boundary
from nmt.data.sentences import Lines, splitter_of
from nmt.data.tokenizer import LANGUAGE, Span, language_token, on_one_line, word_spans
from nmt.errors import ConfigError, SettingError, say_once
from nmt.light.options import AUTO, NONE
from nmt.light.splitter import Splitter
from nmt.search.kept import Kept, KeptLine, Kind, keep, load_glossary
from nmt.search.values import Request

_WORD = rf"[\w{MARKS}]+"
_UNIT = re.compile(rf"{_WORD}(?:[-'’]{_WORD})*|[^\w\s]")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_WORD_END = re.compile(r"\s+")
NOWHERE: Final = (-1, -1)
"""The span of a token that is not in the text."""
_LEVELS: Final = ("sentences", "words", "tokens")


@dataclass(frozen=True)
class Part:
    """What of a line is translated at once."""

    ids: list[int]
    """As the model reads them, without the end symbol."""
    text: str
    """That it is cut from; within a word that is too long, the whole word."""
    begin: int = 0
    """Where `text` begins in the line, or in what the model reads for it."""
    skipped: int = 0
    """Tokens of `text` that are in the parts before."""
    led: int = 0
    """Tokens before those of `text`: 1 that says into which language is translated, or 0."""
    sentence: int = 0
    """Which of the line's sentences it belongs to, from 0; of a line that is not split all of it counts as one."""
    space: str = ""
    """White space before its translation."""
    known: list[Span] | None = None
    """Where its tokens are, if that has been found out."""
    kept: tuple[tuple[int, Kept], ...] = ()
    """What is kept of it, with its place among all that is kept of the line."""

    def spans(self, tokenizer: Tokenizer) -> list[Span]:
        """Where in the line, or in what the model reads for it, its tokens are; NOWHERE for one before its text."""
        if self.known is not None:
            return [NOWHERE] * self.led + self.known
        found = tokenizer.source_spans(self.text)[self.skipped :][: len(self.ids) - self.led]
        return [NOWHERE] * self.led + [(begin + self.begin, end + self.begin) for begin, end in found]


@dataclass(frozen=True)
class Source:
    """A line prepared for translation."""

    line: str
    parts: list[Part]
    tokenizer: Tokenizer
    kept: KeptLine | None = None
    in_capitals: bool = False
    """Whether it is in capitals but read in small letters."""
    several: bool = False
    """Whether it has several sentences but is translated as a whole, because it is not known what the model was trained
    on."""

    @property
    def text(self) -> str:
        """What the model reads."""
        return self.line if self.kept is None else self.kept.text

    @cached_property
    def words(self) -> list[Span]:
        """The words of the line, which white space separates."""
        return word_spans(self.line)

    @cached_property
    def spans(self) -> list[list[Span]]:
        """Where the tokens of each part are."""
        return [part.spans(self.tokenizer) for part in self.parts]

    @cached_property
    def units(self) -> list[SourceUnits]:
        """The words and marks of each part."""
        return [source_units(self.text, spans, part.kept) for part, spans in zip(self.parts, self.spans, strict=True)]

    def original(self, spans: Sequence[Span]) -> list[Span]:
        """Spans of the line from spans of the model's input."""
        return list(spans) if self.kept is None else [self.kept.original(span) for span in spans]

    def space(self, number: int) -> str:
        """The white space before the translation of a part: what is between the sentences in the line, of which tags
        and the like have their own places."""
        part = self.parts[number]
        if not number or self.kept is None or part.sentence == self.parts[number - 1].sentence:
            return part.space
        before = self.parts[number - 1]
        begin, end = self.kept.original((before.begin + len(before.text), part.begin))
        between = self.line[begin:end] if part.begin > before.begin + len(before.text) else ""
        return "".join(letter for letter in between if letter.isspace()) or ("" if between else part.space)

    @property
    def unknown(self) -> int:
        """Tokens that are not in the vocabulary, not counting placeholders."""
        count = 0
        for part in self.parts:
            count += part.ids.count(UNK)
            if self.kept is not None and part.known is not None:
                count -= sum(begin in self.kept.stand_ins for begin, _ in part.known)
        return count

    @property
    def pieces(self) -> tuple[str, ...]:
        """Its tokens as the model reads them."""
        return tuple(name for part in self.parts for name in self.tokenizer.source_tokens([*part.ids, EOS]))


class Sources:
    """Prepares lines: finds what is kept of them, and cuts them into what is translated at once, as
    nmt/light/src/engine.c does.

    By `decoding.split` each sentence is translated by itself: always, never, or where the training text had one
    sentence a line. Where that is not known, in models of versions before 0.3.0, lines of more tokens than any in
    training are split. Then what has more than `decoding.split_long` tokens is cut: after sentences, of which a part
    has as many as it can hold, else between words, else within. Time is linear in the length of a line.
    """

    def __init__(
        self, tokenizer: Tokenizer, decoding: DecodingConfig, lines: Lines | None = None, *, glossary: str | None = None
    ) -> None:
        """Without `lines` (a model without text of its own) `auto` translates lines as a whole. `glossary` is the text
        of the one that `decoding` names, where that is no file.

        Raises ConfigError where sentences are asked for and the splitter, which is C, cannot be compiled; DataError for
        a glossary that cannot be read.
        """
        self._tokenizer = tokenizer
        self._keep: partial[KeptLine | None] | None = None
        if decoding.placeholders or decoding.glossary is not None:
            path, reads = decoding.glossary, tokenizer.source_form
            terms = None if path is None else load_glossary(path, glossary, reads=reads)
            spaced = tokenizer.splits_at_spaces
            self._keep = partial(keep, placeholders=decoding.placeholders, glossary=terms, spaced=spaced)
        self._longest = decoding.split_long
        self._languages, self._language = tokenizer.languages(), decoding.target_language
        if self._language is not None:
            language_token(self._languages, self._language)
        self._lines = lines or Lines()
        self._splitter: Splitter | None = None
        self._always, self._joins = False, " "
        self._splits = decoding.split != NONE and (decoding.split != AUTO or lines is not None)
        self._lowers = decoding.capitals == "lower"
        if not (self._splits or self._longest or self._lowers):
            return
        try:
            self._splitter = splitter_of(self._lines.source_language)
        except ConfigError as error:
            if decoding.split not in (AUTO, NONE):
                raise ConfigError(f"decoding.split: {error}") from None
            if self._splits:
                say_once(__name__, f"decoding.split: lines are not split into sentences: {error}")
            self._splits = False
            return
        self._always = decoding.split == "sentences"
        if decoding.split == AUTO and self._lines.several is not None:
            self._always = self._splits = self._splitter.splits(self._lines.several)
        self._joins = " " if self._splitter.is_spaced(self._lines.target_language) else ""

    def kept_of(self, request: Request) -> KeptLine | None:
        """What is kept of a line; None if nothing is.

        Raises DataError, which names the request, where the translation also has a prefix.
        """
        kept = None if self._keep is None else self._keep(request.text)
        if kept is not None and request.prefix.strip():
            what = f"{kept.kept[0].text!r}, which is put into the translation afterwards"
            raise request.error(f"prefix: not allowed together with {what}")
        return kept

    def _language_of(self, request: Request, text: str) -> tuple[list[int], int]:
        """The token of a line's target language, where the model has any, and where the text begins that it is before.

        Raises DataError, which names the request, for a line without one, and for an unknown one.
        """
        if not self._languages:
            return [], 0
        own = LANGUAGE.match(text)
        try:
            token = language_token(self._languages, own[1] if own else self._language)
        except SettingError as error:
            raise request.error(f"target_language: {error.problems[0][1]}") from None
        return [token], own.end() if own else 0

    def _small(self, request: Request, text: str, start: int) -> str | None:
        """What the model reads instead of a line in capitals; None of another line, and of one with wishes, which are
        about the line as it stands."""
        is_free = self._lowers and not (request.prefix.strip() or request.required or request.forbidden)
        if not is_free or not in_capitals(text[start:]):
            return None
        bounds = [] if self._splitter is None else self._splitter.bounds(text[start:])
        is_english = self._lines.source_language.split("-")[0] == "en"
        return text[:start] + small_letters(text[start:], bounds, is_english=is_english)

    def of(self, requests: Sequence[Request]) -> dict[int, Source]:
        """What of the lines is sent through the model, by their places: what has words, of which there are tokens.

        The sentences of a request with required phrases are not cut, however long they are.
        """
        read: list[tuple[int, str, KeptLine | None, list[int], int, list[Span]]] = []
        lowered = set[int]()
        units: list[str] = []
        for place, request in enumerate(requests):
            kept = self.kept_of(request)
            text = request.text if kept is None else kept.text
            # No letter represents a placeholder.
            if not request.text.strip() or (kept is not None and not any(map(str.isalnum, text))):
                continue
            language, start = self._language_of(request, text)
            if (small := self._small(request, text, start)) is not None:
                text, kept = small, None if kept is None else replace(kept, text=small)
                lowered.add(place)
            bounds = self._splitter.bounds(text[start:]) if self._splits and self._splitter is not None else []
            bounds = [(begin + start, end + start) for begin, end in bounds]
            read.append((place, text, kept, language, start, bounds))
            for begin, end in bounds if self._always and len(bounds) > 1 else [(start, len(text))]:
                units.append(text[begin:end])
        encoded = iter(self._tokenizer.encode_source(units))
        found = {}
        for place, text, kept, language, start, bounds in read:
            several = len(bounds) > 1
            ids = list(islice(encoded, len(bounds) if several and self._always else 1))
            if several and not self._always and 0 < self._lines.longest < len(ids[0]):
                ids = self._tokenizer.encode_source([text[begin:end] for begin, end in bounds])
            elif not (several and self._always):
                bounds = [(start, len(text))]
            parts = list(self._parts(text, bounds, ids, whole=bool(requests[place].required)))
            if kept is not None:
                parts = _with_kept(parts, kept, self._tokenizer)
            if language:
                parts = [replace(part, ids=[*language, *part.ids], led=1) for part in parts]
            whole = several and len(bounds) == 1
            if parts:
                line = text if kept is None else requests[place].text
                found[place] = Source(line, parts, self._tokenizer, kept, place in lowered, whole)
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
                        yield replace(part, sentence=sentence, space=space)
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
        if _LEVELS[level] == "words":  # units with the white space behind each
            begins = [match.end() for match in _WORD_END.finditer(text)]
        else:
            begins = [] if self._splitter is None else [start for start, _ in self._splitter.bounds(text)[1:]]
        ends = [0, *begins, len(text)]
        units = [text[start:end] for start, end in zip(ends, ends[1:], strict=False) if end > start]
        # Neighbouring ones are joined as long as they have at most as many tokens as a part.
        groups: list[tuple[int, list[str]]] = []
        room = place = 0
        for unit, ids in zip(units, self._tokenizer.encode_source(units), strict=True):
            if not groups or len(ids) > room:
                groups.append((place, []))
                room = self._longest
            groups[-1][1].append(unit)
            room -= len(ids)
            place += len(unit)
        texts = ["".join(group) for _, group in groups]
        encoded = self._tokenizer.encode_source([joined.strip() for joined in texts])
        for (place, _), joined, ids in zip(groups, texts, encoded, strict=True):
            start = begin + place + len(joined) - len(joined.lstrip())
            if len(ids) > self._longest:
                yield from self._cut(joined.strip(), begin=start, level=level + 1)
            else:
                yield Part(ids, joined.strip(), start)


def _with_kept(parts: Iterable[Part], kept: KeptLine, tokenizer: Tokenizer) -> list[Part]:
    """The parts of `kept.text` as the model reads them: with the unknown symbol for each placeholder.

    The model has no expectation about the unknown symbol, and the attention shows its translation.
    """
    found: list[Part] = []
    for part in parts:
        ids: list[int] = []
        spans: list[Span] = []
        last = -1
        for token, (begin, end) in zip(part.ids, part.spans(tokenizer), strict=True):
            inside = next((place for place in range(begin, max(end, begin + 1)) if place in kept.stand_ins), None)
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
        if ids:
            found.append(replace(part, ids=ids, known=spans))
    begins = [part.spans(tokenizer)[0][0] for part in found]
    own: list[list[tuple[int, Kept]]] = [[] for _ in found]
    for place, item in enumerate(kept.kept if found else ()):
        own[max(0, bisect_right(begins, item.span[0]) - 1)].append((place, item))
    return [replace(part, kept=tuple(items)) for part, items in zip(found, own, strict=True)]


class SourceUnits(NamedTuple):
    """The units of a part of a source."""

    spans: list[Span]
    """Where in the text that the model read they are."""
    kept: dict[int, int]
    """Kept units: place in `KeptLine.kept` and number of the unit."""
    tokens: list[int]
    """The unit of each token."""
    words: list[bool]
    """Whether each unit is a word; else it is a mark."""


def source_units(text: str, tokens: Sequence[Span], kept: Sequence[tuple[int, Kept]]) -> SourceUnits:
    """Units of what of `text` the tokens at these places are; `kept` is in it, with its places in the line."""
    begin, end = min(span[0] for span in tokens if span != NOWHERE), max(span[1] for span in tokens)
    units: list[Span] = []
    begins = frozenset(span[0] for span in tokens)
    places: dict[int, int] = {}
    for place, item in kept:
        if item.kind in (Kind.WORD, Kind.TERM):
            units += units_of(text, begin, item.span[0], begins)
            places[place] = len(units)
            units.append(item.span)
            begin = item.span[1]
    units += units_of(text, begin, end, begins)
    if not units:  # a part of a character
        units.append((begin, end))
    words = [any(letter.isalnum() for letter in text[slice(*unit)]) for unit in units]
    return SourceUnits(units, places, places_of(tokens, units), words)


def units_of(text: str, begin: int, end: int, begins: Container[int]) -> Iterator[Span]:
    """Words and marks of a part of a text; in scripts without spaces a token that begins within a word, at one of the
    places `begins`, begins a unit."""
    for match in _UNIT.finditer(text, begin, max(begin, end)):
        first, last = match.span()
        if _UNSPACED.search(match[0]):
            for place in range(first + 1, last):
                beside = text[place - 1 : place + 1]
                if place in begins and _UNSPACED.search(beside) and is_boundary(beside[0], beside[1]):
                    yield first, place
                    first = place
        yield first, last


def places_of(spans: Sequence[Span], words: Sequence[Span]) -> list[int]:
    """The place in `words` of each span: that of the word where it begins, or of the next; -1 for NOWHERE, and where
    there are no words.

    Text after all words belongs to the last one. An empty span belongs to the word that ends exactly there.
    """
    ends = [end for _, end in words]
    found = (bisect_left(ends, end) if begin == end else bisect_right(ends, begin) for begin, end in spans)
    return [min(place if span[0] >= 0 else -1, len(words) - 1) for place, span in zip(found, spans, strict=True)]
