"""Input lines: in windows, full ones from files, smaller ones from a person or program that waits for each answer; and
parallel texts, whose lines belong together."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from nmt.cli.common import say
from nmt.cli.descriptors import require
from nmt.data import read_lines
from nmt.data.text import LONGEST_LINE, Policy, Undecodable, windows
from nmt.errors import DataError, counted

_BLOCK = 1 << 16


class LiveLines:
    """The raw lines of a pipe or terminal, each as soon as it is complete.

    A buffered file object cannot say whether it holds another line, so this reads the descriptor.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._held = 0
        self._has_ended = False

    def __iter__(self) -> LiveLines:
        return self

    def __next__(self) -> bytes:
        while not self._lines and not self._has_ended:
            self._read()
        if not self._lines:
            raise StopIteration
        return self._lines.popleft()

    def arrives(self, seconds: float) -> bool:
        """Wait at most so long until a line is complete or the input has ended; return whether it is."""
        deadline = time.monotonic() + seconds
        while not self._lines and not self._has_ended:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                return False
            self._read()
        return True

    def _read(self) -> None:
        """Read the available bytes, waiting for at least one."""
        block = None
        while block is None:
            try:
                block = os.read(self._descriptor, _BLOCK)
            except BlockingIOError:  # a pipe that does not block by itself, and is empty now
                select.select([self._descriptor], [], [])
        if not block:
            self._has_ended = True
            if self._parts:
                self._lines.append(b"".join(self._parts))
            return
        *complete, rest = block.split(b"\n")
        for line in complete:
            self._lines.append(b"".join([*self._parts, line, b"\n"]))
            self._parts = []
            self._held = 0
        if rest:
            self._parts.append(rest)
            self._held += len(rest)
            if self._held > LONGEST_LINE:
                raise DataError(f"{self.name}: a line is longer than {LONGEST_LINE >> 20} MiB; is it text?")


@contextlib.contextmanager
def input_windows(
    path: str | None, *, size: int, undecodable: Undecodable, prompt: str | None = None
) -> Iterator[Iterator[list[str]]]:
    """The lines of a file (.gz too), or of standard input for None, in windows of at most `size`.

    With `prompt`, lines of standard input are asked for one by one.

    A window of a pipe or terminal holds the lines that have arrived, so a sender that waits after each line gets its
    answer at once. Lines that arrive during a translation form the next window.

    Raises:
        DataError: a file is missing or cannot be read, or bytes are not UTF-8 (names file and line) and `undecodable`
            does not allow them. The lines before the error are returned first.
    """
    with contextlib.ExitStack() as stack:
        if path is None and prompt is not None:
            typed = read_lines(typed_lines(prompt), name="standard input", undecodable=undecodable)  # type: ignore[arg-type]
            yield windows(typed, size=1)
            return
        if path is None:
            require(0)
            stream, name = sys.stdin, "standard input"
        elif Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir():  # a named pipe, a terminal
            stream, name = stack.enter_context(Path(path).open("rb", buffering=0)), path
        else:
            yield windows(read_lines(path, undecodable=undecodable), size=size)
            return
        descriptor = _descriptor(stream)
        if descriptor is None or stat.S_ISREG(os.fstat(descriptor).st_mode):
            yield windows(read_lines(stream, name=name, undecodable=undecodable), size=size)
        else:
            live = LiveLines(descriptor, name)
            lines = read_lines(live, name=name, undecodable=undecodable)  # type: ignore[arg-type]
            yield windows(lines, size=size, arrives=live.arrives)


def line_count(path: str | None) -> int | None:
    """The number of lines to translate; None if it is unknown without reading them: a pipe, a packed file.

    Also None for a file that cannot be read, which `input_windows` reports.
    """
    if path is not None and (path.endswith(".gz") or not Path(path).is_file()):
        return None
    with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
        descriptor = _descriptor(sys.stdin if path is None else stack.enter_context(Path(path).open("rb")))
        if descriptor is None or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        count, last, place = 0, b"\n", os.lseek(descriptor, 0, os.SEEK_CUR)
        while block := os.pread(descriptor, 1 << 20, place):
            count, last, place = count + block.count(b"\n"), block[-1:], place + len(block)
        return count + (last != b"\n")
    return None


def _descriptor(stream: IO[Any]) -> int | None:
    """The descriptor below a stream; None for one in memory."""
    try:
        return stream.fileno()
    except (AttributeError, io.UnsupportedOperation):
        return None


HINT = "type a line for its translation; Ctrl-D ends"


def prompt_for(path: str | None, language: str) -> str | None:
    """The prompt for a line of `language`; None if input and output are not both terminals."""
    return f"{language}> " if path is None and sys.stdin.isatty() and sys.stdout.isatty() else None


def typed_lines(prompt: str) -> Iterator[bytes]:
    """Raw lines, each asked for with `prompt`; Ctrl-D ends them.

    Ctrl-C discards the typed part of a line; on an empty line it raises KeyboardInterrupt as usual.
    """
    written = _edited()
    with contextlib.suppress(AttributeError):  # a stream that is not the interpreter's own
        sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]  # --errors decides, as for files
    while True:
        try:
            line = input(prompt)
        except EOFError:
            print()  # leave the rest of the terminal's line to the shell
            return
        except KeyboardInterrupt:
            print()
            if not written():
                raise
            continue
        yield line.encode("utf-8", "surrogateescape") + b"\n"


def _edited() -> Callable[[], str]:
    """Give `input` line editing and a history; return a function that gives the typed part of an interrupted line."""
    try:
        import readline  # not before a person types: it may write control sequences to standard output
    except ImportError:  # Python was built without it; the terminal's own editing is left
        return str
    return readline.get_line_buffer


STDIN: Final = "-"


def read_texts(program: str, texts: Sequence[Sequence[str]], *, policy: Policy) -> list[list[str]]:
    r"""The lines of each text, a list of files to concatenate; all texts must have the same number of lines.

    Invalid UTF-8 is an error. Only "\n" ends a line, as in the sacrebleu command's files (its standard input also
    ends lines at "\r"). Raises DataError for a text without lines, too.
    """
    read = [[line for name in text for line in _read(program, name, Undecodable(policy))] for text in texts]
    first = " ".join(texts[0])
    for names, lines in zip(texts, read, strict=True):
        if len(lines) != len(read[0]):
            raise DataError(
                f"{first} has {counted(len(read[0]), 'line')} but {' '.join(names)} has {len(lines)}; "
                "they must be equal"
            )
    if not read[0]:
        raise DataError(f"{first}: no line to score")
    return read


def _read(program: str, name: str, undecodable: Undecodable) -> list[str]:
    from nmt.data import read_lines

    source: Any = name
    if name == STDIN:
        require(0)
        source, name = sys.stdin, "standard input"
    lines = list(read_lines(source, name=name, undecodable=undecodable))
    if undecodable.noted:
        say(program, f"{name}: {undecodable.summary()}")
    return lines
