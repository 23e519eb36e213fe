"""Limits of a server for its clients: the settings, what a request costs, and what it is refused with."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NoReturn

from nmt.errors import LONGEST_VALUE, printable, shortened

if TYPE_CHECKING:
    from nmt.library.translator import Translator
    from nmt.library.values import Request

CLIENT_GONE = 499
"""Status of a request whose client went away, used only in logs and metrics."""
DRAINING: Final = "the server is draining. Try again later."
SOON: Final = {"Retry-After": "5"}
"""When to try again where the server starts, ends, or has no room."""
LONGEST_MESSAGE: Final = 600
WEIGHT_BYTES: Final = 8
"""Of a weight of the attention in an answer: four decimals, a comma, a space."""
LIBRETRANSLATE: Final = "libretranslate"
APIS: Final = ("nmt", LIBRETRANSLATE)
HEADS: Final = 16
"""Attending heads of a model, about."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and defaults. Each is an option of nmt-serve, whose help says what it is."""

    batch_size: int = 32
    max_wait: float = 0.002
    """Seconds."""
    max_queue: int = 2048
    timeout: float = 30
    max_characters: int = 20_000
    max_body_bytes: int = 1_000_000
    max_tokens: int = 50_000
    """20,000 characters of English have about 5,000."""
    max_sentence_tokens: int = 1_000
    max_answer_bytes: int = 10_000_000
    max_beam_size: int = 16
    max_sessions: int = 64
    max_connections: int | None = None
    """None: as many as is usual, and the process may have."""
    trusted_proxies: tuple[str, ...] = ()
    api_key: str | None = field(default=None, repr=False)
    """Without one everybody may translate."""
    cors_origins: tuple[str, ...] = ()
    api: str = APIS[0]
    """Whose form requests may have: nmt's own, or LibreTranslate's, too."""


class RefusedError(Exception):
    """Answered as `{"error": message}`; long words, which are of the client's making, are shortened."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        words = re.sub(rf"\S{{{LONGEST_VALUE + 1},}}", lambda word: shortened(word[0]), message)
        self.message = shortened(printable(shortened(words, LONGEST_MESSAGE)), LONGEST_MESSAGE)
        super().__init__(self.message)
        self.status = status
        self.headers = dict(headers or {})


def count(
    translator: Translator,
    sentences: Sequence[Request],
    options: Mapping[str, Any],
    settings: Settings,
    *,
    hypotheses: int,
) -> tuple[list[int], dict[str, Any]]:
    """What each sentence of a request costs, tokens times hypotheses; and the options by which none is longer than
    allowed. `options` are the request's own and those of the command.

    Raises RefusedError with status 413 for more than `settings` allow; ConfigError, DataError as `translate` does.
    """
    chosen = dict(options)
    most = settings.max_sentence_tokens
    parts = translator.parts(sentences, **chosen)
    if max(chain(*parts), default=0) > most and "split_long" not in chosen:
        chosen["split_long"] = most
        parts = translator.parts(sentences, **chosen)
    longest = max(chain(*parts), default=0)
    if longest > most:
        _too_much(f"text: {longest:,} tokens cannot be translated at once. Allowed: {most:,} in a sentence.")
    costs = []
    for sentence, own in zip(sentences, parts, strict=True):
        # What the translation must have counts as the source would have it, about.
        wishes = " ".join((sentence.prefix, *sentence.required, *sentence.forbidden))
        tokens = sum(own) + len(own) + (sum(chain(*translator.parts([wishes]))) if wishes.strip() else 0)
        costs.append(tokens * hypotheses * (1 + len(sentence.required)))
    if sum(costs) > settings.max_tokens:
        _too_much(
            f"text: {sum(costs) // hypotheses:,} tokens times {hypotheses} hypotheses are too many. "
            f"Allowed: {settings.max_tokens:,} in all; send less text at a time, or ask for a smaller beam_size."
        )
    details = chosen.get("details") or ()
    details = {details} if isinstance(details, str) else set(details)
    if not details.isdisjoint({"attention", "alignment", "heads"}):
        # It grows with the square of a part; alignment is computed from it.
        translations = (1 + (chosen.get("n_best") or 0)) * (HEADS if "heads" in details else 1)
        weights = sum((part + 1) ** 2 for part in chain(*parts)) * WEIGHT_BYTES * translations
        if weights > settings.max_answer_bytes:
            _too_much(
                f"details: the attention of this text would have about {weights:,} bytes. "
                f"Allowed: {settings.max_answer_bytes:,}; send less text at a time, or ask for a smaller n_best."
            )
    return costs, chosen


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


def check_key(given: str, key: str | None, where: str = "Authorization", allowed: str = "Bearer KEY") -> None:
    """Refuse what has not the key, if there is one; `given` is the value of a header, `where` its name."""
    if key is None:
        return
    kind, _, own = given.partition(" ")
    is_right = secrets.compare_digest(own.strip().encode("utf-8"), key.encode("utf-8"))
    if kind.lower() != "bearer" or not is_right:
        what = "is not the key of this server" if kind else "missing"
        headers = {"WWW-Authenticate": "Bearer"}
        raise RefusedError(401, f"{where}: {what}. Allowed: {allowed}.", headers=headers)


def check_answer(size: int, settings: Settings) -> None:
    """Refuse an answer of so many bytes, if it is too large."""
    if size > settings.max_answer_bytes:
        _too_much(
            f"text: the answer has {size:,} bytes. Allowed: {settings.max_answer_bytes:,}; ask for fewer details."
        )


def _too_much(message: str) -> NoReturn:
    raise RefusedError(413, message)
