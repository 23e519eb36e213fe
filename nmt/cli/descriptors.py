"""Standard input, output and error: those that are missing at the start, and readers that have gone away.

Standard library only: it is the first thing that a command does.
"""

from __future__ import annotations

import io
import os
import select
import sys

from nmt.errors import DataError, NmtError

EXIT_NO_READER = 141
"""128 + SIGPIPE: what a shell reports of a program that writes to a pipe nobody reads any more."""
_NAMES = ("standard input", "standard output", "standard error")


class NoReaderError(NmtError):
    """Whoever read our output has gone away, as `head` does; no message is printed for it."""

    exit_code = EXIT_NO_READER


def open_missing() -> frozenset[int]:
    """Open each of the descriptors 0, 1 and 2 that is closed on the null device; return which ones were closed.

    Otherwise the next file that is opened would get the number, and status lines would land in it. As in GNU's
    programs, reading the one opened for standard input fails, and so does writing to the one for standard output, so
    that nothing is lost unnoticed; standard error takes everything.
    """
    missing = []
    for descriptor, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, flags)  # gets the lowest free number, which is this one
            os.set_inheritable(opened, True)
            missing.append(descriptor)
    # Python has None in place of a stream whose descriptor is closed, and print() to None goes to standard output.
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


MISSING = open_missing()
"""Those of the descriptors 0, 1 and 2 that were closed when the process started."""


def require(descriptor: int) -> None:
    """Raise DataError where standard input (0) or output (1) is needed, but was closed at the start."""
    if descriptor in MISSING:
        raise DataError(f"{_NAMES[descriptor]}: is closed; open it, or name a file")


def has_no_reader(descriptor: int) -> bool:
    """Whether what is written to a pipe or socket arrives nowhere; False for a file."""
    poll = select.poll()
    poll.register(descriptor, 0)  # errors and hang-ups are always reported
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
