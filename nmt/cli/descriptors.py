"""Standard input, output and error: closed at the start, not buffered, or without a reader.

Uses the standard library only, because it runs before anything else is imported.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any

from nmt.errors import DataError, NmtError

EXIT_NO_READER = 141
"""128 + SIGPIPE: the exit code a shell reports for a program that writes to a pipe without a reader."""
_NAMES = ("standard input", "standard output", "standard error")


class NoReaderError(NmtError):
    """Whoever read our output has gone away, as `head` does; no message is printed for it."""

    exit_code = EXIT_NO_READER


def open_missing() -> frozenset[int]:
    """Open each closed descriptor among 0, 1 and 2 on the null device; return which were closed.

    Otherwise the next opened file would get the free number, and status lines would be written into it. As in GNU
    programs, standard input then cannot be read and standard output cannot be written, so that nothing is lost
    unnoticed; what is written to standard error is discarded.
    """
    missing = []
    for descriptor, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, flags)  # gets the lowest free number, which is this one
            os.set_inheritable(opened, True)
            missing.append(descriptor)
    # For a closed descriptor the stream is None in Python, and print(file=None) writes to standard output.
    if sys.stdin is None:
        sys.stdin = _stream(0, "rb")
    if sys.stdout is None:
        sys.stdout = _stream(1, "wb")
    if sys.stderr is None:
        sys.stderr = _stream(2, "wb")
    return frozenset(missing)


def _stream(descriptor: int, mode: str) -> io.TextIOWrapper:
    binary = open(descriptor, mode, closefd=False)  # noqa: SIM115  (as long as the process lives)
    return io.TextIOWrapper(binary, encoding="utf-8", errors="backslashreplace", line_buffering=descriptor == 2)


class _WholeWriter(io.BufferedWriter):
    """Writes all bytes before it returns, or raises OSError."""

    def write(self, block: Any, /) -> int:
        """Write all of `block` and return its length."""
        count = super().write(block)
        self.flush()
        return count


def write_whole() -> None:
    """With PYTHONUNBUFFERED or `python -u`, replace standard output by a stream whose `write` writes everything.

    Python then writes to the raw file. Its `write` may write only a part, to a disk that fills up or to a pipe that
    does not block, and returns how much; `print`, among others, does not look at it.
    """
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.FileIO) and raw.fileno() == 1:
        whole = _WholeWriter(io.FileIO(1, "wb", closefd=False))
        sys.stdout = io.TextIOWrapper(whole, encoding=sys.stdout.encoding, errors=sys.stdout.errors, write_through=True)


MISSING = open_missing()
"""The descriptors among 0, 1 and 2 that were closed when the process started."""
write_whole()


def require(descriptor: int) -> None:
    """Raise DataError if standard input (0) or output (1) was closed at the start."""
    if descriptor in MISSING:
        raise DataError(f"{_NAMES[descriptor]}: is closed; open it, or give a file")


def has_no_reader(descriptor: int) -> bool:
    """Whether a pipe or socket has no reader; False for a file."""
    poll = select.poll()
    poll.register(descriptor, 0)  # errors and hang-ups are always reported
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
