"""How many lines a call of the engine gets: so many that it is short, as nothing else is done in it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

FIRST: Final = 16
MOST: Final = 1000
SHORT, LONG = 0.1, 0.3
"""Seconds of a call, which must end before anything that Ctrl-C asks for. In calls of fewer lines threads wait for each
other more often."""


class Pace:
    """`lines` is the size of the next call."""

    def __init__(self) -> None:
        self.lines = FIRST

    def add(self, lines: int, seconds: float) -> None:
        """Note that a call of so many lines has taken so long."""
        if seconds > LONG:
            self.lines = max(1, lines // 2)
        elif seconds < SHORT and lines >= self.lines:
            self.lines = min(2 * lines, MOST)
