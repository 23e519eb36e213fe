"""What a request is refused with: a status and one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from nmt.errors import LONGEST_VALUE, printable, shortened

CLIENT_GONE = 499
"""Status of a request whose client went away, used only in logs and metrics."""
DRAINING: Final = "the server is draining. Try again later."
SOON: Final = {"Retry-After": "5"}
"""When to try again where the server starts, ends, or has no room."""
LONGEST_MESSAGE: Final = 600


class RefusedError(Exception):
    """Answered as `{"error": message}`; long words, which are of the client's making, are shortened."""

    def __init__(self, status: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        words = re.sub(rf"\S{{{LONGEST_VALUE + 1},}}", lambda word: shortened(word[0]), message)
        self.message = shortened(printable(shortened(words, LONGEST_MESSAGE)), LONGEST_MESSAGE)
        super().__init__(self.message)
        self.status = status
        self.headers = dict(headers or {})
