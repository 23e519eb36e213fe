"""Where what was kept of a source stands in its translation, by the attention of the tokens.

A translation is split into units (words and marks), and so is the source, in which each kept part is one unit.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.data import UNK
from nmt.data.matching import MARKS, UNSPACED, canonical, is_boundary
from nmt.data.tokenizer import Span
from nmt.kept_text.lines import Kept, Kind, broken_placeholders, count_placeholders
from nmt.search.source import NOWHERE, places_of
from nmt.search.texts import Written, by_words

_WORD = rf"[\w{MARKS}]+"
_UNIT = re.compile(rf"{_WORD}(?:[-'’]{_WORD})*|[^\w\s]")
_UNSPACED = re.compile(f"[{UNSPACED}]")


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


_SHARED = 0.4
"""A word comes as well from another word if it has this share of the weight."""


@dataclass(frozen=True)
class Piece:
    """A piece of the written translation."""

    text: str
    gap: str
    """White space before it."""
    weights: Tensor  # [U] how much of each unit of the source went into it
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


def pieces_of(
    text: str, ids: Sequence[int], tokens: Sequence[Span], attention: Tensor, source: SourceUnits
) -> list[Piece]:
    """A translation, its tokens and their attention [T, S] as pieces: words, marks, and symbols for unknown words."""
    spans: list[tuple[Span, int | None]] = []
    begin, begins = 0, frozenset(span[0] for span in tokens)
    for place, (token, span) in enumerate(zip(ids, tokens, strict=True)):
        if token == UNK:
            spans += ((unit, None) for unit in units_of(text, begin, span[0], begins))
            spans.append((span, place))
            begin = span[1]
    spans += ((unit, None) for unit in units_of(text, begin, len(text), begins))
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
        claimed = self._written_as(item.text) if item.kind is Kind.TERM else []
        runs = claimed or self._runs(unit)
        if not runs:
            return False

        def weight(run: Span) -> float:
            return sum(float(piece.weights[unit]) for piece in self._pieces[slice(*run)])

        first, last = max(runs, key=weight)
        if not claimed:
            first, last = self._without_neighbours(unit, first, last)
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

    def _written_as(self, text: str) -> list[Span]:
        """Words that the model has written as the glossary has them, as ranges of pieces."""
        wanted = canonical(text)
        found = []
        for first in range(len(self._pieces)):
            own, last = "", first
            while last < len(self._pieces) and self._pieces[last].kept is None and len(own) < len(wanted):
                own = canonical(f"{own}{self._pieces[last].gap if own else ''}{self._pieces[last].text}")
                last += 1
            if own == wanted:
                found.append((first, last))
        return found

    def _new(self, item: Kept, unit: int, *, gap: str) -> Piece:
        weights = torch.zeros(len(self._source.spans))
        if unit >= 0:
            weights[unit] = 1.0
        return Piece(item.text, gap, weights, unit, kept=item)

    def _insert(self, place: int) -> None:
        """Put a kept unit to which no word is aligned next to the translation of its nearest neighbour."""
        unit, item, pieces = self._source.kept[place], self._kept[place], self._pieces
        slot, is_after, is_next = self._beside(unit, unit + 1, forward=False)
        if is_after:
            gap = item.spaces[0] if is_next else " "
            if slot < len(pieces) and pieces[slot].is_word and not pieces[slot].gap:
                pieces[slot] = replace(pieces[slot], gap=" ")
        else:
            gap = pieces[slot].gap
            pieces[slot] = replace(pieces[slot], gap=item.spaces[1] if is_next else " ")
        pieces.insert(slot, self._new(item, unit, gap=gap))

    def _beside(self, begin: int, end: int, *, forward: bool) -> tuple[int, bool, bool]:
        """Where something belongs that stood between the units `begin` - 1 and `end` of the source.

        Nearest neighbours first: of two equally near ones that before it, or with `forward` that after it. A mark, such
        as a full stop, is a neighbour only if it comes from a mark.

        Returns the piece before which it is, whether it is behind the neighbour, and whether there is as much space
        between them as in the source, where nothing else was between them.
        """
        places: dict[int, list[int]] = {}
        for place, piece in enumerate(self._pieces):
            if piece.kept or piece.is_word or not self._is_word(piece.source):
                places.setdefault(piece.source, []).append(place)
        for distance in range(max(begin, len(self._source.spans) - end)):
            found = []
            for unit, is_after in ((begin - 1 - distance, True), (end + distance, False)):
                if unit >= 0 and unit in places:
                    place = places[unit][-1 if is_after else 0]
                    piece = self._pieces[place]
                    are_alike = piece.kept is not None or piece.is_word == self._is_word(unit)
                    found.append((place + is_after, is_after, distance == 0 and are_alike))
            if found:
                return found[-1 if forward else 0]
        return len(self._pieces), True, False

    def _is_word(self, unit: int) -> bool:
        """Whether a unit of the source is a word, not a mark."""
        return unit in self._source.kept.values() or self._source.words[unit]

    def _insert_marks(self) -> None:
        """Put marks where the words that they mark are, a pair of tags around all that comes from what it enclosed.

        What was well-formed stays so: pairs that were beside each other enclose different pieces, and what was within
        a pair stays within it.
        """
        marks = self._marks()
        levels = [(marks, 0, len(self._pieces))]
        while levels:
            own, low, high = levels.pop()
            self._settle(own, low, high)
            levels += [(mark.children, *mark.slots) for mark in own if mark.children]
        pieces: list[Piece] = []
        done = 0
        todo: list[_Mark | tuple[int, Kept]] = [*_last_first(marks)]
        while todo:
            mark, is_opening = todo.pop(), False
            if isinstance(mark, _Mark):
                (slot, end), item, is_opening = mark.slots, mark.item, mark.is_before_word
                todo += [] if mark.end is None else [(end, mark.end)]
                todo += _last_first(mark.children)
            else:
                slot, item = mark
            pieces += self._pieces[done:slot]
            done = slot
            following = self._pieces[slot] if slot < len(self._pieces) else None
            gap = following.gap if is_opening and following is not None else item.spaces[0]
            pieces.append(self._new(item, -1, gap=gap))
            if following is not None and (is_opening or item.stands_alone):
                self._pieces[slot] = replace(following, gap=item.spaces[1])
        self._pieces = pieces + self._pieces[done:]

    def _marks(self) -> list[_Mark]:
        """The marks of this part of the source that are within no others, with those within them."""
        firsts = [begin for begin, _ in self._source.spans]
        outermost: list[_Mark] = []
        open_marks: list[_Mark] = []
        for item in self._kept.values():
            if item.kind not in (Kind.OPENING, Kind.CLOSING):
                continue
            unit, is_paired = bisect_left(firsts, item.span[0]), item.partner in self._kept
            if is_paired and item.kind is Kind.CLOSING:
                mark = open_marks.pop()
                mark.end, mark.last = item, unit
                begin = mark.item.span[0]
                if unit and mark.first == unit and begin < min(item.span[0], self._source.spans[unit - 1][1]):
                    mark.first -= 1  # it marks a part of a word
                continue
            mark = _Mark(item, unit, unit)
            (open_marks[-1].children if open_marks else outermost).append(mark)
            if is_paired:
                open_marks.append(mark)
        return outermost

    def _settle(self, marks: Sequence[_Mark], low: int, high: int) -> None:
        """Choose the slots of marks that were beside each other, among the pieces from `low` to `high`."""
        places: dict[int, list[int]] = {}
        for place in range(low, high):
            places.setdefault(self._pieces[place].source, []).append(place)
        filled = [(mark, [p for unit in range(mark.first, mark.last) for p in places.get(unit, ())]) for mark in marks]
        taken: list[tuple[int, int]] = []
        # The narrowest first: of others, the pieces on one side of it remain.
        for mark, own in sorted((one for one in filled if one[1]), key=lambda one: max(one[1]) - min(one[1])):
            sides: dict[int, list[int]] = {}
            for place in own:
                side = bisect_right(taken, (place, high))
                if not side or taken[side - 1][1] <= place:
                    sides.setdefault(side, []).append(place)
            if sides:
                run = max(sides.values(), key=len)
                mark.slots = min(run), max(run) + 1
                insort(taken, mark.slots)
        last = low
        for mark in marks:
            if mark.slots[0] < 0:
                forward = mark.end is None and mark.item.kind is Kind.OPENING
                slot = min(max(self._beside(mark.first, mark.last, forward=forward)[0], low), high)
                side = bisect_right(taken, (slot, -1))
                if side and slot < taken[side - 1][1]:
                    slot = taken[side - 1][0 if forward else 1]
                if mark.end is None and not mark.item.stands_alone:  # its other half may be in another part
                    slot = last = max(slot, last)
                mark.slots = slot, slot


@dataclass
class _Mark:
    """A mark, or a pair of tags, with the marks between them."""

    item: Kept
    first: int
    last: int
    """Units of the source from the first to before the last are enclosed."""
    end: Kept | None = None
    children: list[_Mark] = field(default_factory=list)
    slots: tuple[int, int] = (-1, -1)
    """Before which pieces it begins and ends."""

    @property
    def is_before_word(self) -> bool:
        """Whether it belongs to the piece after it."""
        begin, end = self.slots
        return begin < end or (self.end is None and self.item.kind is Kind.OPENING)


def _last_first(marks: Sequence[_Mark]) -> list[_Mark]:
    """Marks that are beside each other: where two begin, what belongs to the word before comes first."""
    return sorted(marks, key=lambda mark: (mark.slots[0], mark.slots[0] < mark.slots[1], mark.is_before_word))[::-1]


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


def written_parts(kept: Sequence[Kept], pieces: Sequence[Sequence[Piece]]) -> list[Written]:
    """The texts of parts in pieces, which together have each placeholder of what is kept as often as that has."""
    expected = sum((count_placeholders(item.text) for item in kept), Counter[str]())
    texts = [written(own) for own in pieces]
    for spaced in (False, True):
        if not kept or count_placeholders(" ".join(part.text for part in texts)) == expected:
            break
        # The model has written something like a placeholder, or what stands beside one has become a part of it.
        texts = [written(without_placeholders(own), spaced=spaced) for own in pieces]
    return texts
