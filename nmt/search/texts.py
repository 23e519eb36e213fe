"""From hypotheses in ids to texts: what was kept of the source is put in its place, and unknown words are replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.data import UNK, Tokenizer
from nmt.data.tokenizer import Span, on_one_line, word_spans
from nmt.errors import SettingError
from nmt.search.constraints import ConstraintsMaker
from nmt.search.placeholders import count_placeholders
from nmt.search.placing import (
    Piece,
    Placer,
    Written,
    alignment_of,
    by_words,
    pieces_of,
    places_of,
    without_placeholders,
    written,
)
from nmt.search.reading import Reading, tokens_of
from nmt.search.source import Source, SourcePart
from nmt.search.values import Alignment, Details, Hypothesis, Request, ScoredText


class Chosen(NamedTuple):
    """The translation of one part of a line."""

    part: SourcePart
    hypothesis: Hypothesis
    reading: Reading | None
    """Where its attention or its log-probabilities are wanted."""

    @property
    def attention(self) -> Tensor:
        """[T, S], where it is wanted."""
        assert self.reading is not None
        return self.reading.attention


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

    def scored(self, source: Source, parts: Sequence[Chosen], *, request: Request, details: Details) -> ScoredText:
        """The translation of a line from those of its parts."""
        text, alignment = self._text(source, parts, request, align="alignment" in details)
        score = sum(chosen.hypothesis.score for chosen in parts) if len(parts) > 1 else parts[0].hypothesis.score
        if not details:
            return ScoredText(text, score)
        tokens = [token for chosen in parts for token in tokens_of(chosen.hypothesis)]
        readings = [chosen.reading for chosen in parts if chosen.reading is not None]
        return ScoredText(
            text,
            score,
            tuple(self._tokenizer.target_tokens(tokens)) if "tokens" in details else None,
            tuple(value for reading in readings for value in reading.log_probs) if "scores" in details else None,
            tuple(reading.attention for reading in readings) if "attention" in details else None,
            alignment,
            token_entropies=tuple(value for reading in readings for value in reading.entropies or ())
            if "entropies" in details
            else None,
            heads_of_parts=tuple(reading.heads or {} for reading in readings) if "heads" in details else None,
        )

    def _text(
        self, source: Source, parts: Sequence[Chosen], request: Request, *, align: bool
    ) -> tuple[str, Alignment | None]:
        """The text of a translation, and its alignment if that is wanted."""
        pieces: list[list[Piece]] | None = None
        if source.kept is not None or (self._replace_unknown and any(UNK in chosen.hypothesis.ids for chosen in parts)):
            fixed = len(self._constraints.ids_of(request.prefix)) if request.prefix.strip() else 0  # they stay
            pieces = [self._pieces(source, chosen, fixed=0 if i else fixed) for i, chosen in enumerate(parts)]
            texts = _written(source, pieces)
        elif align:
            found = [self._tokenizer.target_spans(chosen.hypothesis.ids) for chosen in parts]
            texts = [Written(on_one_line(text), spans) for text, spans in found]
        else:
            texts = [Written(self.decoded(chosen.hypothesis.ids), []) for chosen in parts]
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
            joined += space + part.text
        if not align:
            return joined, None
        aligned: list[tuple[int, int]] = []
        for place, (text, chosen) in enumerate(zip(texts, parts, strict=True)):
            weights, first = (
                _token_weights(source, chosen) if pieces is None else _piece_weights(source, chosen, pieces[place])
            )
            words_of = alignment_of(text.text, text.spans, weights)
            pairs = [(origin + first, word + begins[place]) for origin, word in words_of]
            aligned += pairs[bool(aligned and pairs and pairs[0][1] == aligned[-1][1]) :]  # a word of both parts
        return joined, tuple(aligned)

    def decoded(self, ids: Sequence[int]) -> str:
        """The text of ids; a plugin's tokenizer may not know that a translation is one line."""
        return on_one_line(self._tokenizer.decode_target(ids))

    def _pieces(self, source: Source, chosen: Chosen, *, fixed: int) -> list[Piece]:
        """The translation of a part in pieces, in which what was kept and unknown words are where they belong.

        Unknown words among the first `fixed` tokens stay.
        """
        ids, units = chosen.hypothesis.ids, chosen.part.units
        text, tokens = self._tokenizer.target_spans(ids)
        pieces = pieces_of(on_one_line(text), ids, tokens, chosen.attention, units)
        pieces = Placer(pieces, units, chosen.part.kept).placed()
        if not self._replace_unknown:
            return pieces
        return [
            piece
            if piece.unknown is None or piece.unknown < fixed
            else self._known(piece, piece.unknown, source, chosen)
            for piece in pieces
        ]

    def _known(self, piece: Piece, unknown: int, source: Source, chosen: Chosen) -> Piece:
        """In place of the symbol for an unknown word, the token at `unknown`, the source word that it comes from."""
        ids = chosen.part.ids
        token = int(chosen.attention[unknown, : len(ids)].argmax())
        hidden = "" if source.kept is None else source.kept.stand_in
        span, is_unknown = chosen.part.spans[token], ids[token] == UNK
        copied = self._tokenizer.copied_source(chosen.part.text, span, is_unknown=is_unknown)
        copied = copied.replace(hidden, "") if hidden else copied
        return replace(piece, text=copied, unknown=None) if copied else piece


def _token_weights(source: Source, chosen: Chosen) -> tuple[Tensor, int]:
    """Weights [T, W] of words of the line in the tokens of a part, and the number of the first of these words."""
    places, first, count = _local(source, chosen.part.spans)
    return by_words(chosen.attention[: len(chosen.hypothesis.ids)], places, count), first


def _piece_weights(source: Source, chosen: Chosen, pieces: Sequence[Piece]) -> tuple[Tensor, int]:
    """The same [P, W] of pieces; what was kept comes from where it was."""
    units = source.original(chosen.part.units.spans)
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
    more, same = len(text) - len(written.text), 0
    while same < min(len(text), len(written.text)) and text[-1 - same] == written.text[-1 - same]:
        same += 1
    unchanged = len(written.text) - same

    def moved(place: int) -> int:
        return place + more if place >= unchanged else min(place, len(text) - same)

    return Written(text, [(moved(begin), moved(end)) for begin, end in written.spans])


def _local(source: Source, spans: Sequence[Span]) -> tuple[list[int], int, int]:
    """The words of the line at these places, counted from the first of them; the number of that, and how many."""
    places = places_of(spans, source.words)
    first = min(places, default=0)
    return [place - first for place in places], first, max(places, default=-1) + 1 - first


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
