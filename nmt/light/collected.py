"""Results as values of Python, from what the engine holds of them."""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from .binding import Model, Results
from .counts import UNK, notes_of
from .results import Hypothesis, Result

EOS: Final = 2
_WORD: Final = "▁"
_SPACE: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2581\ufeff\ufffd]")
"""What the normalisation of SentencePiece makes spaces of, or takes out."""
_BYTE: Final = re.compile("<0x([0-9A-F]{2})>")


def collected(model: Model, found: Results, place: int, line: str, details: Sequence[str]) -> Result:
    """The result of `line`, which is at `place`; `details` as in `Translator.translate`."""
    sources = [found.source_ids(place, part) for part in range(found.parts(place))]
    wants_pieces = not {"tokens", "attention"}.isdisjoint(details)
    return Result(
        line,
        [_hypothesis(model, found, place, i, line, sources, details) for i in range(found.translations(place))],
        source_tokens=sum(len(source) - 1 for source in sources),
        unknown=sum(source.count(UNK) for source in sources),
        source_pieces=tuple(_pieces(model, sources, target=False)) if wants_pieces else None,
        notes=tuple(notes_of(found, place)),
    )


def _hypothesis(
    model: Model, found: Results, place: int, i: int, line: str, sources: list[list[int]], details: Sequence[str]
) -> Hypothesis:
    text = found.text(place, i)
    score = found.score(place, i)
    parts = range(len(sources)) if score > -math.inf or math.isnan(score) else range(0)
    tokens = [found.ids(place, i, part) for part in parts] if details else []
    scores = [value for part in parts for value in found.log_probs(place, i, part)] if "scores" in details else []
    wanted = not {"attention", "alignment"}.isdisjoint(details)
    attention = [found.attention(place, i, part) for part in parts] if wanted else []
    return Hypothesis(
        text,
        score,
        tuple(_pieces(model, tokens, target=True)) if "tokens" in details else None,
        tuple(scores) if "scores" in details else None,
        tuple(attention) if "attention" in details else None,
        _alignment(attention, _words(model, sources, line, target=False), _words(model, tokens, text, target=True))
        if "alignment" in details
        else None,
    )


def _pieces(model: Model, parts: Iterable[list[int]], *, target: bool) -> Iterator[str]:
    return (model.piece(token, target=target) for part in parts for token in part)


def _words(model: Model, parts: Iterable[list[int]], text: str, *, target: bool) -> list[int]:
    """The number of the word of `text` that each token belongs to; -1 of end symbols, which belong to none.

    White space separates words. Words are counted by the pieces that begin one. If that gives another number, as where
    normalisation puts a space into a word or takes one out, characters are counted instead.
    """
    words = text.split()
    pieces = [
        (None if token == EOS else "?" if token == UNK else model.piece(token, target=target), place == 0)
        for part in parts
        for place, token in enumerate(part)
    ]
    found, word = list[int](), -1
    for piece, is_first in pieces:
        word += piece is not None and (is_first or piece.startswith(_WORD))
        found.append(-1 if piece is None else word)
    return found if word + 1 == len(words) else _by_characters([piece for piece, _ in pieces], words)


def _by_characters(pieces: Sequence[str | None], words: Sequence[str]) -> list[int]:
    """The number of the word at the same place in the text, for each piece; -1 for None, and where there are no words.

    Spaces do not count, as they come and go in normalisation; of the bytes of a character, the first one counts.
    """
    ends = list(accumulate(_length(unicodedata.normalize("NFKC", word)) for word in words))
    begins, length = list[int](), 0
    for piece in pieces:
        byte = _BYTE.fullmatch(piece or "")
        is_within = byte is not None and 0x80 <= int(byte[1], 16) < 0xC0
        begins.append(begins[-1] if is_within and begins else length)
        length += 0 if is_within or piece is None else 1 if byte else _length(piece)
    places = ((2 * begin + 1) * ends[-1] // (2 * length) if ends and length else 0 for begin in begins)
    return [
        -1 if piece is None else min(bisect_right(ends, place), len(words) - 1)
        for piece, place in zip(pieces, places, strict=True)
    ]


def _length(text: str) -> int:
    return len(_SPACE.sub("", text))


def _alignment(
    parts: list[list[list[float]]], from_words: Sequence[int], to_words: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """For each word of the translation the source word with the largest weight, of its pieces together."""
    sums: dict[int, dict[int, float]] = {}
    targets, start = iter(to_words), 0
    for part in parts:
        for row in part:
            word = next(targets)
            own = sums.setdefault(word, {}) if word >= 0 else {}
            for weight, source in zip(row, from_words[start:], strict=False):
                if source >= 0:
                    own[source] = own.get(source, 0.0) + weight
        start += len(part[0]) if part else 0
    return tuple((max(own, key=own.__getitem__), word) for word, own in sorted(sums.items()) if own)
