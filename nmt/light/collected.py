"""Results as values of Python, from what the engine holds of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from .binding import Model, Results
from .results import Hypothesis, Result

UNK: Final = 1
EOS: Final = 2
_WORD: Final = "▁"


def collected(model: Model, found: Results, place: int, line: str, details: Sequence[str]) -> Result:
    """The result of `line`, which is at `place`; `details` as in `Translator.translate`."""
    parts = found.parts(place)
    sources = [found.source_ids(place, part) for part in range(parts)]
    notes = ["split"] if parts > 1 else []
    notes += [] if found.is_finite(place) else ["no_finite_translation"]
    notes += ["length_limit"] if found.was_cut(place) else []
    wants_pieces = not {"tokens", "attention"}.isdisjoint(details)
    return Result(
        line,
        [_hypothesis(model, found, place, i, sources, details) for i in range(found.translations(place))],
        source_tokens=sum(len(source) - 1 for source in sources),
        unknown=sum(source.count(UNK) for source in sources),
        source_pieces=tuple(_pieces(model, sources, target=False)) if wants_pieces else None,
        notes=tuple(notes),
    )


def _hypothesis(
    model: Model, found: Results, place: int, i: int, sources: list[list[int]], details: Sequence[str]
) -> Hypothesis:
    score = found.score(place, i)
    parts = range(len(sources)) if score > -math.inf or math.isnan(score) else range(0)
    tokens = [found.ids(place, i, part) for part in parts] if details else []
    scores = [value for part in parts for value in found.log_probs(place, i, part)] if "scores" in details else []
    wanted = not {"attention", "alignment"}.isdisjoint(details)
    attention = _block_diagonal([found.attention(place, i, part) for part in parts]) if wanted else []
    return Hypothesis(
        found.text(place, i),
        score,
        tuple(_pieces(model, tokens, target=True)) if "tokens" in details else None,
        tuple(scores) if "scores" in details else None,
        attention if "attention" in details else None,
        _alignment(model, sources, tokens, attention) if "alignment" in details else None,
    )


def _pieces(model: Model, parts: Iterable[list[int]], *, target: bool) -> Iterator[str]:
    return (model.piece(token, target=target) for part in parts for token in part)


def _words(model: Model, parts: Iterable[list[int]], *, target: bool) -> list[int]:
    """The number of the word that each token belongs to; -1 of end symbols, which belong to none."""
    found, word = list[int](), -1
    for part in parts:
        for place, token in enumerate(part):
            word += token != EOS and (place == 0 or model.piece(token, target=target).startswith(_WORD))
            found.append(-1 if token == EOS else word)
    return found


def _alignment(
    model: Model, sources: list[list[int]], tokens: list[list[int]], attention: list[list[float]]
) -> tuple[tuple[int, int], ...]:
    """For each word of the translation the source word with the largest weight, of its pieces together."""
    from_words, to_words = _words(model, sources, target=False), _words(model, tokens, target=True)
    sums: dict[int, dict[int, float]] = {}
    for row, word in zip(attention, to_words, strict=True):
        own = sums.setdefault(word, {}) if word >= 0 else {}
        for weight, source in zip(row, from_words, strict=True):
            if source >= 0:
                own[source] = own.get(source, 0.0) + weight
    return tuple((max(own, key=own.__getitem__), word) for word, own in sorted(sums.items()) if own)


def _block_diagonal(parts: list[list[list[float]]]) -> list[list[float]]:
    """The attention of parts within all source tokens, 0 elsewhere."""
    if len(parts) == 1:
        return parts[0]
    widths = [len(part[0]) if part else 0 for part in parts]
    starts = [0, *accumulate(widths)]
    return [
        [0.0] * start + row + [0.0] * (starts[-1] - start - width)
        for part, start, width in zip(parts, starts, widths, strict=False)
        for row in part
    ]
