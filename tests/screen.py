"""A terminal of 80 columns for tests: what is written to it, and what is left to be seen."""

from __future__ import annotations

import os
import pty
import sys
import termios
import threading
from typing import TextIO

import pytest

from nmt.training.logs import CLEAR_ROW

COLUMNS = 80


class Screen:
    """A terminal of 80 columns for this process to write to, and what it has got."""

    def __init__(self) -> None:
        self._reader, writer = pty.openpty()
        termios.tcsetwinsize(writer, (24, COLUMNS))
        self.stream: TextIO = os.fdopen(writer, "w", encoding="utf-8", buffering=1)
        self._got = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while more := os.read(self._reader, 65536):
                self._got += more
        except OSError:  # nobody can write any more
            pass

    def text(self) -> str:
        """All that was written, the terminal's control characters included; nothing can be written any more."""
        self.stream.close()
        self._thread.join(10)
        os.close(self._reader)
        return self._got.decode()

    def rows(self) -> list[str]:
        """What is left on the screen, however many rows that are: what a carriage return precedes is overwritten."""
        rows = []
        for row in self.text().replace(CLEAR_ROW, "").split("\n"):
            shown = ""
            for piece in row.split("\r"):
                shown = piece + shown[len(piece) :]
            rows.append(shown.rstrip())
        return rows


def screen_as_stderr(patch: pytest.MonkeyPatch) -> Screen:
    """stderr is a terminal from now on. To be called in a test, as pytest replaces stderr after its fixtures."""
    screen = Screen()
    patch.setattr(sys, "stderr", screen.stream)
    return screen
