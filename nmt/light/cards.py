"""What model files state about themselves, as far as translating needs it."""

from __future__ import annotations

from .errors import EngineError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .translator import Translator


def cards_of(translator: Translator) -> list[dict[str, Any]]:
    """The card of each of its files; empty where that is no JSON, which does not keep a file from translating."""
    cards: list[dict[str, Any]] = []
    for number in range(len(translator.paths)):
        try:
            cards.append(translator.card_of(number))
        except EngineError:
            cards.append({})
    return cards


def longest_source(cards: Sequence[dict[str, Any]]) -> tuple[int, bool] | None:
    """Tokens of the longest source that all of some models have seen in training; None if no card states it.

    Also whether there was such a source: False if only the limit of the training is known.
    """
    found = [longest for card in cards if (longest := _longest(card)) is not None]
    return min(found, key=lambda longest: longest[0], default=None)


def _longest(card: dict[str, Any]) -> tuple[int, bool] | None:
    known, limit = card.get("longest_training_source"), card.get("training_max_length")
    if isinstance(known, int):
        return known, True
    return (limit, False) if isinstance(limit, int) else None
