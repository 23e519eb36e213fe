"""What a request is refused with: a status and one line."""

from __future__ import annotations

from collections.abc import Mapping

CLIENT_GONE = 499
"""Status of a request whose client went away, used only in logs and metrics."""


class RefusedError(Exception):
    """Answered as `{"error": message}`."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})
