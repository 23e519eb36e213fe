"""Limits of a server for its clients, and how it combines their sentences."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Limits and defaults, each an option of nmt-serve."""

    batch_size: int = 32
    """Sentences translated together, at most."""
    max_wait: float = 0.002
    """Seconds for which the oldest sentence of a batch waits for others."""
    max_queue: int = 2048
    """Sentences that may wait."""
    timeout: float = 30.0
    """Seconds from the arrival of a request to its answer."""
    max_characters: int = 20_000
    """Characters of the texts of a request, including prefix and phrases."""
    max_body_bytes: int = 1_000_000
    """Bytes of the body of a request."""
    max_connections: int | None = None
    """Connections at a time; None: as many as is usual, and the process may have."""
    max_beam_size: int = 16
    """Largest beam, and number of translations, that a request may ask for."""
    max_tokens: int = 50_000
    """Cost of a request: tokens of its texts times hypotheses. 20,000 characters of English have about 5,000 tokens."""
    max_sentence_tokens: int = 1_000
    """Tokens of a sentence, or a part of a longer one, that is translated at once."""
    max_answer_bytes: int = 10_000_000
    """Bytes of an answer."""
    api_key: str | None = field(default=None, repr=False)
    """Without one everybody may translate."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies, whose X-Forwarded-For names the client."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may use the server from a browser; * for all."""
