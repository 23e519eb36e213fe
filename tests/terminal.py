"""A terminal of 80 columns for tests: what a command shows there, and what a person types."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COLUMNS = 80


class Terminal:
    """Both ends of a pseudo-terminal; `descriptor` is the one that a program takes for its terminal."""

    def __init__(self) -> None:
        self._own, self.descriptor = pty.openpty()
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self.shown = ""

    def type(self, keys: str) -> None:
        """Send what a person types."""
        os.write(self._own, keys.encode())

    def interrupt(self, pid: int) -> None:
        """Ctrl-C, once the program waits for keys: one a moment before would stay unnoticed until the next key."""
        state = Path(f"/proc/{pid}/stat")
        if not state.is_file():  # no Linux
            time.sleep(0.5)
        deadline = time.monotonic() + 10.0
        while state.is_file() and state.read_text().rpartition(") ")[2][0] != "S":
            assert time.monotonic() < deadline, "the program does not wait for keys"
            time.sleep(0.01)
        self.type("\x03")

    def wait_for(self, text: str, *, seconds: float = 60.0) -> str:
        """Read until `text` is shown; return what has been since the last wait, with it."""
        deadline, seen = time.monotonic() + seconds, ""
        while text not in seen:
            assert time.monotonic() < deadline, f"no {text!r} but {seen!r}"
            seen += self._read(0.1)
        return seen

    def rest(self) -> str:
        """All that has been shown and not been read."""
        seen = ""
        while more := self._read(0.2):
            seen += more
        return seen

    def _read(self, seconds: float) -> str:
        if not select.select([self._own], [], [], seconds)[0]:
            return ""
        try:
            text = os.read(self._own, 1 << 16).decode()
        except OSError:  # the program has ended, and nobody has the other end
            return ""
        self.shown += text
        return text

    def close(self) -> None:
        """Give both ends back."""
        os.close(self._own)
        os.close(self.descriptor)


@contextmanager
def terminal() -> Iterator[Terminal]:
    """A terminal for the block."""
    opened = Terminal()
    try:
        yield opened
    finally:
        opened.close()
