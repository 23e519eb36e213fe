"""What a request costs, counted when it is accepted: tokens times hypotheses, and the size of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from nmt.library.translator import Translator
from nmt.library.values import Request
from nmt.serving.refusal import RefusedError
from nmt.serving.settings import Settings

WEIGHT_BYTES: Final = 8
"""Of a weight of the attention in an answer: four decimals, a comma, a space."""
HEADS: Final = 16
"""Attending heads of a model, about."""


class Budget(NamedTuple):
    """What was counted."""

    costs: list[int]
    """Of each sentence, tokens times hypotheses."""
    options: dict[str, Any]
    """The options, by which no sentence is longer than allowed."""


def count(
    translator: Translator,
    sentences: Sequence[Request],
    options: Mapping[str, Any],
    settings: Settings,
    *,
    hypotheses: int,
) -> Budget:
    """The budget of a request; `options` are the request's own and those of the command.

    Raises RefusedError with status 413 for more than `settings` allow; ConfigError, DataError as `translate` does.
    """
    chosen = dict(options)
    parts = translator.parts(sentences, **chosen)
    longest = _longest(parts)
    if longest > settings.max_sentence_tokens and "split_long" not in chosen:
        chosen["split_long"] = settings.max_sentence_tokens
        parts = translator.parts(sentences, **chosen)
        longest = _longest(parts)
    if longest > settings.max_sentence_tokens:
        _refuse(
            f"text: {longest:,} tokens cannot be translated at once. "
            f"Allowed: {settings.max_sentence_tokens:,} in a sentence."
        )
    costs = [
        (sum(part + 1 for part in own) + _wishes(translator, sentence)) * hypotheses * (1 + len(sentence.required))
        for sentence, own in zip(sentences, parts, strict=True)
    ]
    if sum(costs) > settings.max_tokens:
        _refuse(
            f"text: {sum(costs) // hypotheses:,} tokens times {hypotheses} hypotheses are too many. "
            f"Allowed: {settings.max_tokens:,} in all; send less text at a time, or ask for a smaller beam_size."
        )
    weights = _attention_size(parts, chosen)
    if weights > settings.max_answer_bytes:
        _refuse(
            f"details: the attention of this text would have about {weights:,} bytes. "
            f"Allowed: {settings.max_answer_bytes:,}; send less text at a time, or ask for a smaller n_best."
        )
    return Budget(costs, chosen)


def is_surely_short(sentences: Sequence[Request], options: Mapping[str, Any], *, most: int) -> bool:
    """Whether sentences have at most so many tokens even if each character is one; then nothing need be counted."""
    if "details" in options:
        return False
    characters = 0
    for sentence in sentences:
        if not sentence.text.isascii() or sentence.prefix or sentence.required or sentence.forbidden:
            return False
        characters += len(sentence.text) + 1
    return characters <= most


def check_answer(size: int, settings: Settings) -> None:
    """Refuse an answer of so many bytes, if it is too large."""
    if size > settings.max_answer_bytes:
        _refuse(f"text: the answer has {size:,} bytes. Allowed: {settings.max_answer_bytes:,}; ask for fewer details.")


def _longest(parts: Sequence[Sequence[int]]) -> int:
    return max((part for own in parts for part in own), default=0)


def _wishes(translator: Translator, sentence: Request) -> int:
    """Tokens of what the translation must have, about: as the source would have them."""
    wishes = " ".join((sentence.prefix, *sentence.required, *sentence.forbidden))
    return sum(map(sum, translator.parts([wishes]))) if wishes.strip() else 0


def _attention_size(parts: Sequence[Sequence[int]], options: Mapping[str, Any]) -> int:
    """Bytes of the attention, which grows with the square of a part; alignment is computed from it."""
    details = options.get("details") or ()
    details = {details} if isinstance(details, str) else set(details)
    if details.isdisjoint({"attention", "alignment", "heads"}):
        return 0
    translations = 1 + (options.get("n_best") or 0)
    squares = sum((part + 1) ** 2 for own in parts for part in own)
    return squares * WEIGHT_BYTES * translations * (HEADS if "heads" in details else 1)


def _refuse(message: str) -> NoReturn:
    raise RefusedError(413, message)
