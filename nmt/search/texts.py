"""From hypotheses in ids to texts: by the attention of the tokens, what was kept of the source is put in its place,
unknown words are replaced, and words are aligned.

A translation is split into units (words and marks), and so is the source, in which each kept part is one unit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.data import UNK, Tokenizer
from nmt.data.capitals import capitals
from nmt.data.matching import canonical
from nmt.data.tokenizer import Span, on_one_line, word_spans
from nmt.errors import SettingError
from nmt.search.constraints import ConstraintsMaker
from nmt.search.kept import Kept, Kind, broken_placeholders, count_placeholders
from nmt.search.reading import Reading, tokens_of
from nmt.search.source import Source, SourceUnits, places_of, units_of
from nmt.search.values import (
    Alignment,
    Details,
    Hypothesis,
    Request,
    ScoredText,
    Translation,
    wants_pieces,
    with_details,
)


class Texts:
    """Makes texts of what was found for lines."""

    def __init__(self, tokenizer: Tokenizer, constraints: ConstraintsMaker, *, replace_unknown: bool) -> None:
        """Raises ConfigError where unknown words are to be replaced and the tokenizer has none."""
        if replace_unknown and not tokenizer.has_unknown:
            raise SettingError(("decoding.replace_unknown", "the tokenizer of this model has no unknown words"))
        self._tokenizer = tokenizer
        self._constraints = constraints
        self._replace_unknown = replace_unknown

    def needs_reading(self, source: Source, found: Sequence[Sequence[Hypothesis]], details: Details) -> bool:
        """Whether the attention of what was found for the parts of `source`, or log-probabilities, must be known."""
        if not all(found):
            return False
        if source.kept is not None or any(detail != "tokens" for detail in details):
            return True
        return self._replace_unknown and any(UNK in hypothesis.ids for part in found for hypothesis in part)

    def translation(
        self,
        request: Request,
        source: Source,
        found: Sequence[Sequence[Hypothesis]],
        readings: Sequence[Sequence[Reading]] | None,
        details: Details,
    ) -> Translation:
        """What became of a line, from what was found for its parts, and read again where that was wanted."""
        is_finite, texts = all(found), []
        for rank in range(max(map(len, found)) if is_finite else 0):
            chosen, read = [], []
            for place, own in enumerate(found):
                at = min(rank, len(own) - 1)
                chosen.append(own[at])
                if readings is not None:
                    read.append(readings[place][at])
            text, alignment = self._text(request, source, chosen, read, align="alignment" in details)
            score = chosen[0].score
            for one in chosen[1:]:
                score += one.score
            scored = ScoredText(text, score)
            texts.append(self._detailed(scored, chosen, read, alignment, details) if details else scored)
        if not is_finite:
            texts = [with_details(ScoredText("", -math.inf), details)]
        sentences, tokens, longest, has_ended = set(), 0, 0, True
        for part, own in zip(source.parts, found, strict=True):
            sentences.add(part.sentence)
            tokens += len(part.ids)
            longest = max(longest, len(part.ids))
            has_ended = has_ended and (not own or own[0].has_ended)
        return Translation(
            request.text,
            texts,
            source_tokens=tokens,
            unknown=source.unknown,
            parts=len(source.parts),
            sentences=len(sentences),
            several=source.several,
            in_capitals=source.in_capitals,
            longest_part=longest,
            has_ended=has_ended,
            is_finite=is_finite,
            missing=self._constraints.missing(request, texts[0].text) if request.required else 0,
            source_pieces=source.pieces if details and wants_pieces(details) else None,
        )

    def untranslated(self, request: Request, details: Details, *, stays: bool) -> Translation:
        """A line that is not sent through the model: empty or, with `stays`, of nothing but placeholders."""
        text = on_one_line(request.text) if stays else self._constraints.with_prefix(request, "")
        alignment = tuple((place, place) for place, _ in enumerate(text.split())) if stays else ()
        return Translation(
            request.text,
            [with_details(ScoredText(text, 0.0, alignment=alignment), details)],
            missing=self._constraints.missing(request, text),
            source_pieces=() if wants_pieces(details) else None,
        )

    def _detailed(
        self,
        scored: ScoredText,
        chosen: Sequence[Hypothesis],
        readings: Sequence[Reading],
        alignment: Alignment | None,
        details: Details,
    ) -> ScoredText:
        """A translation with the details that were asked for, from those of its parts."""
        tokens = [token for one in chosen for token in tokens_of(one)]
        full = replace(
            scored,
            tokens=tuple(self._tokenizer.target_tokens(tokens)),
            token_scores=tuple(value for reading in readings for value in reading.log_probs),
            attention_of_parts=tuple(reading.attention for reading in readings),
            alignment=alignment,
            token_entropies=tuple(value for reading in readings for value in reading.entropies or ()),
            heads_of_parts=tuple(reading.heads or {} for reading in readings),
        )
        return with_details(full, details)

    def _text(
        self,
        request: Request,
        source: Source,
        chosen: Sequence[Hypothesis],
        readings: Sequence[Reading],
        *,
        align: bool,
    ) -> tuple[str, Alignment | None]:
        """The text of a translation, and its alignment if that is wanted."""
        pieces: list[list[Piece]] | None = None
        texts: list[Written] = []
        if source.kept is not None or (self._replace_unknown and any(UNK in one.ids for one in chosen)):
            fixed = (
                len(self._constraints.ids_of(request.prefix, inside=False)) if request.prefix.strip() else 0
            )  # they stay
            pieces = []
            for place, (one, reading) in enumerate(zip(chosen, readings, strict=True)):
                pieces.append(self._pieces(source, place, one.ids, reading.attention, fixed=0 if place else fixed))
            texts = _written(source, pieces)
        else:
            decode, spans = self._tokenizer.decode_target, list[Span]()
            for one in chosen:
                text, spans = self._tokenizer.target_spans(one.ids) if align else (decode(one.ids), spans)
                texts.append(Written(on_one_line(text), spans))
        if request.prefix:
            texts[0] = _respelled(texts[0], self._constraints.with_prefix(request, texts[0].text))
        joined = ""
        begins: list[int] = []  # the number of the first word of each part
        words = 0
        for place, part in enumerate(texts):
            space = source.space(place) if joined and part.text else ""
            words -= bool(joined and part.text and not space)  # without a space the last word continues
            begins.append(words)
            words += len(word_spans(part.text)) if align else 0
            joined += space + (capitals(part.text) if source.in_capitals and pieces is None else part.text)
        if not align:
            return joined, None
        aligned: list[tuple[int, int]] = []
        for place, (part, one, reading) in enumerate(zip(texts, chosen, readings, strict=True)):
            if pieces is None:
                places, first, count = _local(source, source.spans[place])
                weights = by_words(reading.attention[: len(one.ids)], places, count)
            else:
                weights, first = _piece_weights(source, place, pieces[place])
            words_of = alignment_of(part.text, part.spans, weights)
            pairs = [(origin + first, word + begins[place]) for origin, word in words_of]
            aligned += pairs[bool(aligned and pairs and pairs[0][1] == aligned[-1][1]) :]  # a word of both parts
        return joined, tuple(aligned)

    def _pieces(self, source: Source, number: int, ids: Sequence[int], attention: Tensor, *, fixed: int) -> list[Piece]:
        """The translation of a part in pieces, in which what was kept and unknown words are where they belong.

        Unknown words among the first `fixed` tokens stay.
        """
        text, tokens = self._tokenizer.target_spans(ids)
        part, units = source.parts[number], source.units[number]
        pieces = Placer(pieces_of(on_one_line(text), ids, tokens, attention, units), units, part.kept).placed()
        for place, piece in enumerate(pieces if self._replace_unknown else ()):
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
            return [piece if piece.kept else replace(piece, text=capitals(piece.text)) for piece in pieces]
        return pieces


def _piece_weights(source: Source, number: int, pieces: Sequence[Piece]) -> tuple[Tensor, int]:
    """Weights [P, W] of words of the line in the pieces of a part, and the number of the first of these words.

    What was kept comes from where it was.
    """
    units = source.original(source.units[number].spans)
    origins = [piece.kept.origin for piece in pieces if piece.kept]
    places, first, count = _local(source, [*units, *origins])
    weights, own = torch.zeros(len(pieces), count), iter(places[len(units) :])
    for row, piece in zip(weights, pieces, strict=True):
        if piece.kept:
            row[next(own)] = 1.0
        else:
            row += by_words(piece.weights, places[: len(units)], count)
    return weights, first


def _respelled(written: Written, text: str) -> Written:
    """The same with another beginning."""
    if written.text == text:
        return written
    more, same = len(text) - len(written.text), len(commonprefix([text[::-1], written.text[::-1]]))
    unchanged = len(written.text) - same

    def moved(place: int) -> int:
        return place + more if place >= unchanged else min(place, len(text) - same)

    return Written(text, [(moved(begin), moved(end)) for begin, end in written.spans])


def _local(source: Source, spans: Sequence[Span]) -> tuple[list[int], int, int]:
    """The words of the line at these places, counted from the first of them; the number of that, and how many."""
    places = places_of(spans, source.words)
    first = min((place for place in places if place >= 0), default=0)
    return [max(place - first, -1) for place in places], first, max(places, default=-1) + 1 - first


def _written(source: Source, pieces: Sequence[Sequence[Piece]]) -> list[Written]:
    """The texts of parts in pieces, which together have each placeholder of the source as often as it has."""
    kept = [] if source.kept is None else source.kept.kept
    expected = sum((count_placeholders(item.text) for item in kept), Counter[str]())
    texts = [written(own) for own in pieces]
    for spaced in (False, True):
        if not kept or count_placeholders(" ".join(part.text for part in texts)) == expected:
            break
        # The model has written something like a placeholder, or what stands beside one has become a part of it.
        texts = [written(without_placeholders(own), spaced=spaced) for own in pieces]
    return texts


def by_words(attention: Tensor, places: Sequence[int], count: int) -> Tensor:
    """Attention [..., S] added up to [..., count]: `places` has that of each source token, -1 for none.

    The end symbol, and what else is behind the tokens with places, is left out.
    """
    known = [token for token, place in enumerate(places) if place >= 0]
    index = torch.tensor([places[token] for token in known], dtype=torch.long)
    return attention.new_zeros(*attention.shape[:-1], count).index_add_(-1, index, attention[..., known])


def alignment_of(text: str, pieces: Sequence[Span], weights: Tensor) -> Alignment:
    """For each word of `text` the source word with the largest weight, of the pieces at `pieces` together.

    weights [P, W] are those of W source words in each of the P pieces. A word without a piece has no source word.
    """
    words = word_spans(text)
    if not words or not weights.numel():
        return ()
    firsts = places_of(pieces, words)
    lasts = places_of([(max(begin, end - 1), end) for begin, end in pieces], words)
    owned = [
        (piece, word)
        for piece, ends in enumerate(zip(firsts, lasts, strict=True))
        for word in range(ends[0], ends[1] + 1)
    ]
    own, covered = (torch.tensor(column) for column in zip(*owned, strict=True))
    summed = weights.new_zeros(len(words), weights.size(1)).index_add_(0, covered, weights[own])
    known = set(covered.tolist())
    return tuple((source, target) for target, source in enumerate(summed.argmax(1).tolist()) if target in known)


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
