"""What the search asks for about kept text: what of a line is kept, and texts with all of it in its place."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.data import UNK, Tokenizer
from nmt.data.tokenizer import Span, on_one_line
from nmt.errors import SettingError
from nmt.kept_text.lines import Kept, KeptLine, keep, load_glossary
from nmt.kept_text.placing import Piece, Placer, SourceUnits, pieces_of, source_units, written_parts
from nmt.registry import IN_CAPITALS, KEEPERS
from nmt.search.reading import Reading
from nmt.search.source import Part, Source
from nmt.search.texts import Written, by_words, words_of_line
from nmt.search.values import Hypothesis


@KEEPERS.register("attention")
class Keeper:
    """Finds what is kept, and its places in translations by the attention of the tokens."""

    def __init__(self, tokenizer: Tokenizer, decoding: DecodingConfig, *, glossary: str | None = None) -> None:
        """`glossary` is the text of the one that `decoding` names, where that is no file.

        Raises ConfigError where unknown words are to be replaced and the tokenizer has none; DataError for a glossary
        that cannot be read.
        """
        if decoding.replace_unknown and not tokenizer.has_unknown:
            raise SettingError(("decoding.replace_unknown", "the tokenizer of this model has no unknown words"))
        self._tokenizer = tokenizer
        self._replaces, self._placeholders = decoding.replace_unknown, decoding.placeholders
        path, reads = decoding.glossary, tokenizer.source_form
        self._terms = None if path is None else load_glossary(path, glossary, reads=reads)
        self._known: tuple[Source, list[SourceUnits]] | None = None

    @staticmethod
    def check_glossary(path: str) -> None:
        """Raises DataError for one that cannot be read."""
        load_glossary(path)

    def kept_of(self, line: str) -> KeptLine | None:
        """What is kept of a line; None if nothing is."""
        if not self._placeholders and self._terms is None:
            return None
        spaced = self._tokenizer.splits_at_spaces
        return keep(line, placeholders=self._placeholders, glossary=self._terms, spaced=spaced)

    def parts(self, parts: Iterable[Part], kept: KeptLine) -> list[Part]:
        """The parts of `kept.text` as the model reads them: with the unknown symbol for each placeholder.

        The model has no expectation about the unknown symbol, and the attention shows its translation.
        """
        found: list[Part] = []
        for part in parts:
            ids: list[int] = []
            spans: list[Span] = []
            last = -1
            for token, (begin, end) in zip(part.ids, part.spans(self._tokenizer), strict=True):
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
        begins = [part.spans(self._tokenizer)[0][0] for part in found]
        own: list[list[tuple[int, Kept]]] = [[] for _ in found]
        for place, item in enumerate(kept.kept if found else ()):
            own[max(0, bisect_right(begins, item.span[0]) - 1)].append((place, item))
        return [replace(part, kept=tuple(items)) for part, items in zip(found, own, strict=True)]

    def is_needed(self, source: Source, found: Iterable[Hypothesis]) -> bool:
        """Whether translations of a source have anything that is kept, or a symbol for an unknown word."""
        return source.kept is not None or (self._replaces and any(UNK in one.ids for one in found))

    def placed(
        self, source: Source, chosen: Sequence[Hypothesis], readings: Sequence[Reading], *, fixed: int, align: bool
    ) -> tuple[list[Written], list[tuple[Tensor, int]]]:
        """The texts of the parts of a translation, in which what was kept and unknown words are where they belong.

        Unknown words among the first `fixed` tokens stay. With `align`, also for each part weights [P, W] of words of
        the line in its P pieces, and the number of the first of these words.
        """
        units = self._units_of(source)
        pieces = [
            self._pieces(source, place, one.ids, reading.attention, units=units[place], fixed=0 if place else fixed)
            for place, (one, reading) in enumerate(zip(chosen, readings, strict=True))
        ]
        weights = [_weights(source, *both) for both in zip(units, pieces, strict=True)] if align else []
        return written_parts([] if source.kept is None else source.kept.kept, pieces), weights

    def _units_of(self, source: Source) -> list[SourceUnits]:
        """The words and marks of each part; all translations of a source, which come one after the other, have them."""
        known = self._known
        if known is None or known[0] is not source:
            parts = zip(source.parts, source.spans, strict=True)
            known = self._known = source, [source_units(source.text, spans, part.kept) for part, spans in parts]
        return known[1]

    def _pieces(
        self, source: Source, number: int, ids: Sequence[int], attention: Tensor, *, units: SourceUnits, fixed: int
    ) -> list[Piece]:
        text, tokens = self._tokenizer.target_spans(ids)
        part = source.parts[number]
        pieces = Placer(pieces_of(on_one_line(text), ids, tokens, attention, units), units, part.kept).placed()
        for place, piece in enumerate(pieces if self._replaces else ()):
            if piece.unknown is not None and piece.unknown >= fixed:
                # In place of the symbol for an unknown word, the source word that it comes from.
                token = part.led + int(attention[piece.unknown, part.led : len(part.ids)].argmax())
                copied = self._tokenizer.copied_source(
                    source.text, source.spans[number][token], is_unknown=part.ids[token] == UNK
                )
                copied = copied if source.kept is None else copied.replace(source.kept.stand_in, "")
                if copied:
                    pieces[place] = replace(piece, text=copied, unknown=None)
        if source.in_capitals:
            upper = IN_CAPITALS.get("upper")
            return [piece if piece.kept else replace(piece, text=upper(piece.text)) for piece in pieces]
        return pieces


def _weights(source: Source, units: SourceUnits, pieces: Sequence[Piece]) -> tuple[Tensor, int]:
    """What was kept comes from where it was."""
    spans = units.spans if source.kept is None else [source.kept.original(span) for span in units.spans]
    origins = [piece.kept.origin for piece in pieces if piece.kept]
    places, first, count = words_of_line(source, [*spans, *origins])
    weights, own = torch.zeros(len(pieces), count), iter(places[len(spans) :])
    for row, piece in zip(weights, pieces, strict=True):
        if piece.kept:
            row[next(own)] = 1.0
        else:
            row += by_words(piece.weights, places[: len(spans)], count)
    return weights, first
