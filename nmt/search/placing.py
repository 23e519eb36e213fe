"""Places kept source parts in a translation, by the attention of its tokens.

A translation is split into units (words and marks), and so is the source, in which each kept part is one unit.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.data import UNK
from nmt.data.spans import Span
from nmt.search.alignment import by_words, places_of
from nmt.search.kept import Kept
from nmt.search.placeholders import Kind, broken_placeholders

_SHARED = 0.4
"""A word comes as well from another word if it has this share of the weight."""
_UNIT = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Piece:
    """A piece of the written translation."""

    text: str
    gap: str
    """White space before it."""
    weights: Tensor
    """[U] how much of each unit of the source went into it"""
    source: int
    """The unit of the source that most of it comes from; -1 where there is none"""
    unknown: int | None = None
    """Which token it is, if it is the symbol for an unknown word."""
    kept: Kept | None = None
    """The kept item that it represents, if any."""

    @property
    def is_word(self) -> bool:
        """Whether it can correspond to a source word; a mark cannot."""
        return self.unknown is not None or any(letter.isalnum() for letter in self.text)


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
    begin, end = min(span[0] for span in tokens), max(span[1] for span in tokens)
    units: list[Span] = []
    places: dict[int, int] = {}
    for place, item in kept:
        if item.kind in (Kind.WORD, Kind.TERM):
            units += _units(text, begin, item.span[0])
            places[place] = len(units)
            units.append(item.span)
            begin = item.span[1]
    units += _units(text, begin, end)
    if not units:  # a part of a character
        units.append((begin, end))
    words = [any(letter.isalnum() for letter in text[slice(*unit)]) for unit in units]
    return SourceUnits(units, places, places_of(tokens, units), words)


def _units(text: str, begin: int, end: int) -> Iterator[Span]:
    return (match.span() for match in _UNIT.finditer(text, begin, max(begin, end)))


def pieces_of(
    text: str, ids: Sequence[int], tokens: Sequence[Span], attention: Tensor, source: SourceUnits
) -> list[Piece]:
    """A translation, its tokens and their attention [T, S] as pieces: words, marks, and symbols for unknown words."""
    spans: list[tuple[Span, int | None]] = []
    begin = 0
    for place, (token, span) in enumerate(zip(ids, tokens, strict=True)):
        if token == UNK:
            spans += ((unit, None) for unit in _units(text, begin, span[0]))
            spans.append((span, place))
            begin = span[1]
    spans += ((unit, None) for unit in _units(text, begin, len(text)))
    if not spans:
        return []
    weights = by_words(attention[: len(ids)], source.tokens, len(source.spans))
    summed = weights.new_zeros(len(spans), weights.size(1))
    owners = places_of(tokens, [span for span, _ in spans])
    summed.index_add_(0, torch.tensor(owners, dtype=torch.long), weights)
    sources = summed.argmax(1).tolist()
    pieces, before = [], 0
    for ((begin, end), unknown), own, unit in zip(spans, summed, sources, strict=True):
        pieces.append(Piece(text[begin:end], text[before:begin], own, unit, unknown))
        before = end
    return pieces


class Placer:
    """Puts the kept items of one part of a source into one translation of it."""

    def __init__(self, pieces: Sequence[Piece], source: SourceUnits, kept: Sequence[tuple[int, Kept]]) -> None:
        self._pieces = list(pieces)
        self._source = source
        self._kept = dict(kept)

    def placed(self) -> list[Piece]:
        """The pieces with all kept items, each once.

        An item that is a word replaces the words aligned to it; of several runs of such words, the one with the largest
        weight. If there is none, it is put next to the translation of its nearest neighbour in the source.
        """
        waiting = [place for place in self._source.kept if not self._replace(place)]
        for place in waiting:
            self._insert(place)
        self._insert_marks()
        return self._pieces

    def _replace(self, place: int) -> bool:
        """Let a kept unit take the place of words that come from it; false if there are none."""
        unit, item = self._source.kept[place], self._kept[place]
        if item.kind is Kind.TERM and self._claim(unit, item):
            return True
        runs = self._runs(unit)
        if not runs:
            return False
        first, last = self._without_neighbours(unit, *max(runs, key=lambda run: self._weight(unit, *run)))
        if first == last:
            return False
        self._pieces[first:last] = [self._new(item, unit, gap=self._pieces[first].gap)]
        return True

    def _without_neighbours(self, unit: int, first: int, last: int) -> tuple[int, int]:
        """A run of words without end words that also align to a neighbour of the unit that has no other word.

        So an article, or the noun of a kept adjective, is not lost.
        """
        known = {piece.source for piece in self._pieces}
        for neighbour in (unit - 1, unit + 1):
            is_there = 0 <= neighbour < len(self._source.spans) and neighbour not in self._source.kept.values()
            if is_there and neighbour not in known and self._source.words[neighbour]:
                for place in dict.fromkeys((first, last - 1)) if first < last else ():
                    weights = self._pieces[place].weights
                    if float(weights[neighbour]) >= _SHARED * float(weights[unit]):
                        self._pieces[place] = replace(self._pieces[place], source=neighbour)
                        first, last = (place + 1, last) if place == first else (first, place)
                        break
        return first, last

    def _runs(self, unit: int) -> list[tuple[int, int]]:
        """Words next to each other that come from a unit, as ranges of pieces."""
        runs: list[tuple[int, int]] = []
        for place, piece in enumerate(self._pieces):
            if piece.source == unit and piece.is_word and piece.kept is None:
                if runs and runs[-1][1] == place:
                    runs[-1] = (runs[-1][0], place + 1)
                else:
                    runs.append((place, place + 1))
        return runs

    def _weight(self, unit: int, first: int, last: int) -> float:
        return sum(float(piece.weights[unit]) for piece in self._pieces[first:last])

    def _claim(self, unit: int, item: Kept) -> bool:
        """Take words that the model has written as the glossary has them; of several the likeliest."""
        wanted = [match[0] for match in _UNIT.finditer(item.text)]
        size = len(wanted)
        found = [
            (place, place + size)
            for place in range(len(self._pieces) - size + 1)
            if [piece.text for piece in self._pieces[place : place + size]] == wanted
            and not any(piece.kept for piece in self._pieces[place : place + size])
        ]
        if not found:
            return False
        first, last = max(found, key=lambda run: self._weight(unit, *run))
        self._pieces[first:last] = [self._new(item, unit, gap=self._pieces[first].gap)]
        return True

    def _new(self, item: Kept, unit: int, *, gap: str) -> Piece:
        weights = torch.zeros(len(self._source.spans))
        if unit >= 0:
            weights[unit] = 1.0
        return Piece(item.text, gap, weights, unit, kept=item)

    def _insert(self, place: int) -> None:
        """Put a kept unit to which no word is aligned next to the translation of its nearest neighbour."""
        unit, item = self._source.kept[place], self._kept[place]
        beside = self._beside(unit, unit + 1, forward=False)
        gap, pieces = " ", self._pieces
        if beside.is_next:
            gap = item.spaces[0]
        if beside.is_after:
            new = self._new(item, unit, gap=gap)
            following = pieces[beside.slot : beside.slot + 1]
            if following and following[0].is_word and not following[0].gap:
                pieces[beside.slot] = replace(following[0], gap=" ")
        else:
            new = self._new(item, unit, gap=pieces[beside.slot].gap)
            pieces[beside.slot] = replace(pieces[beside.slot], gap=item.spaces[1] if beside.is_next else " ")
        pieces.insert(beside.slot, new)

    def _beside(self, begin: int, end: int, *, forward: bool) -> _Beside:
        """Where something belongs that stood between the units `begin` - 1 and `end` of the source.

        Nearest neighbours first: of two equally near ones that before it, or with `forward` that after it. A mark, such
        as a full stop, is a neighbour only if it comes from a mark.
        """
        places: dict[int, list[int]] = {}
        for place, piece in enumerate(self._pieces):
            if piece.kept or piece.is_word or not self._is_word(piece.source):
                places.setdefault(piece.source, []).append(place)
        for distance in range(max(begin, len(self._source.spans) - end)):
            before, after = begin - 1 - distance, end + distance
            found = []
            if before in places and before >= 0:
                place = places[before][-1]
                found.append(_Beside(place + 1, True, distance == 0 and self._alike(place, before)))
            if after in places:
                place = places[after][0]
                found.append(_Beside(place, False, distance == 0 and self._alike(place, after)))
            if found:
                return found[-1 if forward else 0]
        return _Beside(len(self._pieces), True, False)

    def _is_word(self, unit: int) -> bool:
        """Whether a unit of the source is a word, not a mark."""
        return unit in self._source.kept.values() or self._source.words[unit]

    def _alike(self, place: int, unit: int) -> bool:
        """Whether a piece and the unit that it comes from are both words or both marks."""
        piece = self._pieces[place]
        return piece.kept is not None or piece.is_word == self._is_word(unit)

    def _insert_marks(self) -> None:
        """Put marks where the words that they mark are."""
        marks: dict[int, tuple[list[Kept], list[Kept]]] = {}
        firsts = [begin for begin, _ in self._source.spans]
        for item in self._kept.values():
            if item.kind in (Kind.OPENING, Kind.CLOSING):
                unit = bisect_left(firsts, item.span[0])
                slot, is_opening = self._slot_of(item, unit, firsts)
                marks.setdefault(slot, ([], []))[is_opening].append(item)
        if not marks:
            return
        pieces: list[Piece] = []
        for slot in range(len(self._pieces) + 1):
            piece = self._pieces[slot] if slot < len(self._pieces) else None
            closing, opening = marks.get(slot, ([], []))
            for item in closing:
                pieces.append(self._new(item, -1, gap=item.spaces[0]))
                if item.stands_alone and piece is not None and not opening:
                    piece = replace(piece, gap=item.spaces[1])
            for item in opening:
                pieces.append(self._new(item, -1, gap=" " if piece is None else piece.gap))
                if piece is not None:
                    piece = replace(piece, gap=item.spaces[1])
            pieces += [] if piece is None else [piece]
        self._pieces = pieces

    def _slot_of(self, item: Kept, unit: int, firsts: Sequence[int]) -> tuple[int, bool]:
        """Before which piece a mark stands that stood before a unit of the source; whether it belongs to that piece."""
        partner = None if item.partner is None else self._kept.get(item.partner)
        is_opening = item.kind is Kind.OPENING
        if partner is not None:
            other = bisect_left(firsts, partner.span[0])
            first, last = min(unit, other), max(unit, other)
            inside = [place for place, piece in enumerate(self._pieces) if first <= piece.source < last]
            if inside:
                return (inside[0], True) if is_opening else (inside[-1] + 1, False)
            return self._beside(first, last, forward=False).slot, False
        return self._beside(unit, unit, forward=is_opening).slot, is_opening


class _Beside(NamedTuple):
    """A place next to a neighbour."""

    slot: int
    """The piece before which it is."""
    is_after: bool
    """Whether it is behind the neighbour."""
    is_next: bool
    """Whether there is as much space between them as in the source, where nothing else was between them."""


class Written(NamedTuple):
    """The text of pieces."""

    text: str
    spans: list[Span]
    """Where in it each piece is."""


def written(pieces: Sequence[Piece], *, spaced: bool = False) -> Written:
    """The text of the pieces, and where in it each is; `spaced` puts spaces around what was kept."""
    text = ""
    spans: list[Span] = []
    for place, piece in enumerate(pieces):
        gap = piece.gap
        if spaced and place and not gap and (piece.kept or pieces[place - 1].kept):
            gap = " "
        text += gap if text else ""
        spans.append((len(text), len(text) + len(piece.text)))
        text += piece.text
    return Written(text.rstrip(), spans)


def without_placeholders(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces with nothing like a placeholder in what was not kept: marks of such are left out or set apart."""
    found: list[Piece] = []
    tail = gap = ""  # what was written since the last space, and the space before what is left out
    for piece in pieces:
        gap = piece.gap or gap
        if piece.kept:
            found.append(replace(piece, gap=gap))
            tail = gap = ""
            continue
        text = piece.text if piece.unknown is not None else broken_placeholders(piece.text)
        if not text:
            continue
        if not gap and broken_placeholders(tail + text) != tail + text:
            gap = " "
        found.append(replace(piece, text=text, gap=gap))
        tail = text if gap else tail + text
        gap = ""
    return found
