"""From hypotheses in ids to texts, with words aligned by the attention of the tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from os.path import commonprefix
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.data import Tokenizer
from nmt.data.tokenizer import Span, on_one_line, word_spans
from nmt.registry import IN_CAPITALS
from nmt.search.constraints import ConstraintsMaker
from nmt.search.reading import Reading, tokens_of
from nmt.search.source import Source, places_of
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

    def __init__(self, tokenizer: Tokenizer, constraints: ConstraintsMaker, keeper: Any = None) -> None:
        """`keeper` puts what was kept in its place: of KEEPERS; None where nothing is."""
        self._tokenizer = tokenizer
        self._constraints = constraints
        self._keeper = keeper

    def needs_reading(self, source: Source, found: Sequence[Sequence[Hypothesis]], details: Details) -> bool:
        """Whether the attention of what was found for the parts of `source`, or log-probabilities, must be known."""
        if not all(found):
            return False
        return any(detail != "tokens" for detail in details) or self._places(source, chain.from_iterable(found))

    def _places(self, source: Source, found: Iterable[Hypothesis]) -> bool:
        return self._keeper is not None and self._keeper.is_needed(source, found)

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
        texts: list[Written] = []
        kept_weights: list[tuple[Tensor, int]] = []
        if is_placed := self._places(source, chosen):
            has_prefix = bool(request.prefix.strip())
            fixed = len(self._constraints.ids_of(request.prefix, inside=False)) if has_prefix else 0  # they stay
            texts, kept_weights = self._keeper.placed(source, chosen, readings, fixed=fixed, align=align)
        else:
            decode, spans = self._tokenizer.decode_target, list[Span]()
            for one in chosen:
                text, spans = self._tokenizer.target_spans(one.ids) if align else (decode(one.ids), spans)
                texts.append(Written(on_one_line(text), spans))
        if request.prefix:
            texts[0] = _respelled(texts[0], self._constraints.with_prefix(request, texts[0].text))
        as_written = IN_CAPITALS.get("upper") if source.in_capitals and not is_placed else str
        joined = ""
        begins: list[int] = []  # the number of the first word of each part
        words = 0
        for place, part in enumerate(texts):
            space = source.space(place) if joined and part.text else ""
            words -= bool(joined and part.text and not space)  # without a space the last word continues
            begins.append(words)
            words += len(word_spans(part.text)) if align else 0
            joined += space + as_written(part.text)
        if not align:
            return joined, None
        aligned: list[tuple[int, int]] = []
        for place, (part, one, reading) in enumerate(zip(texts, chosen, readings, strict=True)):
            if is_placed:
                weights, first = kept_weights[place]
            else:
                places, first, count = words_of_line(source, source.spans[place])
                weights = by_words(reading.attention[: len(one.ids)], places, count)
            words_of = alignment_of(part.text, part.spans, weights)
            pairs = [(origin + first, word + begins[place]) for origin, word in words_of]
            aligned += pairs[bool(aligned and pairs and pairs[0][1] == aligned[-1][1]) :]  # a word of both parts
        return joined, tuple(aligned)


class Written(NamedTuple):
    """The text of pieces."""

    text: str
    spans: list[Span]
    """Where in it each piece is."""


def _respelled(written: Written, text: str) -> Written:
    """The same with another beginning."""
    if written.text == text:
        return written
    more, same = len(text) - len(written.text), len(commonprefix([text[::-1], written.text[::-1]]))
    unchanged = len(written.text) - same

    def moved(place: int) -> int:
        return place + more if place >= unchanged else min(place, len(text) - same)

    return Written(text, [(moved(begin), moved(end)) for begin, end in written.spans])


def words_of_line(source: Source, spans: Sequence[Span]) -> tuple[list[int], int, int]:
    """The words of the line at these places, counted from the first of them; the number of that, and how many."""
    places = places_of(spans, source.words)
    first = min((place for place in places if place >= 0), default=0)
    return [max(place - first, -1) for place in places], first, max(places, default=-1) + 1 - first


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
