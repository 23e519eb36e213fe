"""A line prepared for translation: what of it is translated at once, as the model reads it, and its words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

from nmt.config.schema import DecodingConfig
from nmt.data import EOS, UNK, Tokenizer
from nmt.data.sentences import Lines, splitter_of
from nmt.data.tokenizer import LANGUAGE, Span, language_token, on_one_line, word_spans
from nmt.errors import ConfigError, SettingError, say_once
from nmt.light.options import AUTO, NONE
from nmt.light.splitter import Splitter
from nmt.registry import IN_CAPITALS, KEEPERS
from nmt.search.values import Request

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
    kept: tuple[tuple[int, Any], ...] = ()
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
    kept: Any = None
    """What is kept of it, a `KeptLine` of nmt.kept_text; None if nothing is."""
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

    def space(self, number: int) -> str:
        """The white space before the translation of a part."""
        part = self.parts[number]
        return self.kept.space(self.line, self.parts[number - 1], part) if number and self.kept else part.space

    @property
    def unknown(self) -> int:
        """Tokens that are not in the vocabulary, not counting placeholders."""
        return sum(part.ids.count(UNK) - (self.kept.symbols(part) if self.kept else 0) for part in self.parts)

    @property
    def pieces(self) -> tuple[str, ...]:
        """Its tokens as the model reads them."""
        return tuple(name for part in self.parts for name in self.tokenizer.source_tokens([*part.ids, EOS]))


def keeper_of(tokenizer: Tokenizer, decoding: DecodingConfig, *, glossary: str | None = None) -> Any:
    """What keeps parts of lines as they are, where `decoding` asks for that; errors are those of its constructor."""
    if not (decoding.placeholders or decoding.glossary is not None or decoding.replace_unknown):
        return None
    return KEEPERS.get("attention")(tokenizer, decoding, glossary=glossary)


class Sources:
    """Prepares lines: finds what is kept of them, and cuts them into what is translated at once, as
    nmt/light/src/engine.c does.

    By `decoding.split` each sentence is translated by itself: always, never, or where the training text had one
    sentence a line. Where that is not known, in models of versions before 0.3.0, lines of more tokens than any in
    training are split. Then what has more than `decoding.split_long` tokens is cut: after sentences, of which a part
    has as many as it can hold, else between words, else within. Time is linear in the length of a line.
    """

    def __init__(
        self, tokenizer: Tokenizer, decoding: DecodingConfig, lines: Lines | None = None, *, keeper: Any = None
    ) -> None:
        """Without `lines` (a model without text of its own) `auto` translates lines as a whole. `keeper` finds what of
        a line is kept: of KEEPERS; None where nothing is.

        Raises ConfigError where sentences are asked for and the splitter, which is C, cannot be compiled.
        """
        self._tokenizer = tokenizer
        self._keeper = keeper
        self._longest = decoding.split_long
        self._languages, self._target = tokenizer.languages(), (decoding.target_language, decoding.domain)
        if decoding.target_language is not None or (decoding.domain is not None and not self._languages):
            language_token(self._languages, *self._target)
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

    def kept_of(self, request: Request) -> Any:
        """What is kept of a line; None if nothing is.

        Raises DataError, which names the request, where the translation also has a prefix.
        """
        kept = None if self._keeper is None else self._keeper.kept_of(request.text)
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
            token = language_token(self._languages, *((own[1],) if own else self._target))
        except SettingError as error:
            raise request.error(str(error).removeprefix("decoding.")) from None
        return [token], own.end() if own else 0

    def _small(self, request: Request, text: str, start: int) -> str | None:
        """What the model reads in place of a line in capitals; None of others, and of those with wishes."""
        is_free = self._lowers and not (request.prefix.strip() or request.required or request.forbidden)
        if not is_free or not IN_CAPITALS.get("is")(text[start:]):
            return None
        bounds = [] if self._splitter is None else self._splitter.bounds(text[start:])
        is_english = self._lines.source_language.split("-")[0] == "en"
        small: str = IN_CAPITALS.get("lower")(text[start:], bounds, is_english=is_english)
        return text[:start] + small

    def of(self, requests: Sequence[Request]) -> dict[int, Source]:
        """What of the lines is sent through the model, by their places: what has words, of which there are tokens.

        The sentences of a request with required phrases are not cut, however long they are.
        """
        read: list[tuple[int, str, Any, list[int], int, list[Span]]] = []
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
                text, kept = small, None if kept is None else kept.read_as(small)
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
                parts = self._keeper.parts(parts, kept)
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


def places_of(spans: Sequence[Span], words: Sequence[Span]) -> list[int]:
    """The place in `words` of each span: that of the word where it begins, or of the next; -1 for NOWHERE, and where
    there are no words.

    Text after all words belongs to the last one. An empty span belongs to the word that ends exactly there.
    """
    ends = [end for _, end in words]
    found = (bisect_left(ends, end) if begin == end else bisect_right(ends, begin) for begin, end in spans)
    return [min(place if span[0] >= 0 else -1, len(words) - 1) for place, span in zip(found, spans, strict=True)]
