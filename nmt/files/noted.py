"""Counts of lines with some property, and the first line numbers, for short summaries."""

from __future__ import annotations

from dataclasses import dataclass, field

from nmt.errors import counted

SHOWN = 10
"""Line numbers that a summary names."""


@dataclass
class NotedLines:
    """Counts lines and keeps the numbers, from 1, of the first few."""

    count: int = 0
    numbers: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        """Note the line with this number."""
        self.count += 1
        if len(self.numbers) < SHOWN:
            self.numbers.append(number)

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def lines(self) -> str:
        """`1 line` or `1,203 lines`."""
        return counted(self.count, "line")

    @property
    def listed(self) -> str:
        """The numbers: `17, 40, 93`, with `...` where there are more."""
        return ", ".join(map(str, self.numbers)) + (", ..." if self.count > len(self.numbers) else "")

    def said(self, what: str) -> str:
        """The lines worded with `what`: `3 lines longer than any in training: 17, 40, 93`."""
        return f"{self.lines} {what}: {self.listed}"
