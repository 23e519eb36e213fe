"""Input lines: in windows, full ones from files, smaller ones from a person or program that waits for each answer; the
wishes for each line, from its own text or from files next to it; a bar of them; and parallel texts."""

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
from typing import IO, Any, BinaryIO, Final, NamedTuple

from nmt.cli.common import say
from nmt.cli.descriptors import require
from nmt.data import read_lines
from nmt.data.text import Policy, Undecodable, wide, windows
from nmt.data.tokenizer import on_one_line
from nmt.errors import DataError, counted
from nmt.light.lines import LONGEST_LINE
from nmt.light.wishes import also_given, read_object, read_wishes, text_of, wishes_of
from nmt.search.values import Request
from nmt.system import USUAL_COLUMNS, columns

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
            if self._held > LONGEST_LINE:  # which `read_lines` refuses by its number, after the lines before it
                self._lines.append(b"".join(self._parts))
                self._has_ended = True


@contextlib.contextmanager
def input_windows(
    path: str | None, *, size: int, undecodable: Undecodable, prompt: str | None = None
) -> Iterator[Iterator[list[str]]]:
    """The lines of a file (.gz too), or of standard input for None, in windows of at most `size`.

    With `prompt`, lines of standard input are asked for one by one.

    A window of a pipe or terminal holds the lines that have arrived, so a sender that waits after each line gets its
    answer at once. Lines that arrive during a translation form the next window.

    Raises DataError if a file is missing or cannot be read, or if bytes are not UTF-8 (it names file and line) and
    `undecodable` does not allow them; the lines before the error are returned first.
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
    try:
        import readline  # not before a person types: it may write control sequences to standard output

        written = readline.get_line_buffer
    except ImportError:  # Python was built without it; the terminal's own editing is left
        written = str
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
    source: Any = name
    if name == STDIN:
        require(0)
        source, name = sys.stdin, "standard input"
    lines = list(read_lines(source, name=name, undecodable=undecodable))
    if undecodable.noted:
        say(program, f"{name}: {undecodable.summary()}")
    return lines


_TEXT = "text"
Fields = dict[str, Any]
"""Some fields of a Request."""


class _Beside(NamedTuple):
    """A file that goes with the input."""

    path: str
    undecodable: Undecodable
    """The rule by which it is read."""
    lines: Iterator[str]
    read: Callable[[str, str], Fields]


class RequestReader:
    """Requests from the lines of an input, window by window, and from the files that go with it, line by line."""

    def __init__(
        self,
        name: str,
        *,
        input_format: str = "text",
        prefix: str | None = None,
        constraints: str | None = None,
        policy: Policy = "strict",
    ) -> None:
        """`name`: the input's name in errors; `input_format`: one of FORMATS.

        `prefix` and `constraints` are files (may be .gz) with a prefix, or a JSON object, for each line, empty for
        none; `policy`: what to do with lines of these that are not UTF-8. DataError if one is missing, or has another
        number of lines than the input (if both are files).
        """
        self._name = name
        self._read = FORMATS[input_format]
        self._beside: list[_Beside] = []
        for path, read in (
            (prefix, lambda line, where: {"prefix": line} if line.strip() else {}),
            (constraints, read_wishes),
        ):
            if path is not None:
                rule = Undecodable(policy)
                self._beside.append(_Beside(path, rule, read_lines(path, undecodable=rule), read))
        self._is_plain = input_format == "text" and not self._beside
        self._lines = 0
        for path, *_ in self._beside:
            # Compared before anything is translated; a pipe can be read only once.
            if os.path.isfile(path) or not os.path.exists(path):
                found = _count(path)
                if os.path.isfile(name) and found != (expected := _count(name)):
                    raise wide(Path(name), Path(path)) or DataError(
                        f"{name} has {counted(expected, 'line')} but {path} has {found:,}; {_ONE_EACH}"
                    )

    def requests(self, lines: Sequence[str]) -> Sequence[str | Request]:
        """The requests of the next lines; the lines themselves if there are no wishes."""
        if self._is_plain:
            return lines
        return [self._request(line) for line in lines]

    def finish(self) -> None:
        """Raise DataError if a file that goes with the input has more lines than the input."""
        for path, _, lines, _ in self._beside:
            if next(lines, None) is not None:
                raise DataError(f"{path} has more than the {counted(self._lines, 'line')} of {self._name}; {_ONE_EACH}")

    def problems(self) -> list[str]:
        """For each file with lines that were not UTF-8 a message about them."""
        return [f"{path}: {rule.summary()}" for path, rule, *_ in self._beside if rule.noted]

    def _request(self, line: str) -> Request:
        self._lines += 1
        where = f"{self._name}, line {self._lines}"
        fields = self._read(line, where)
        for path, _, lines, read in self._beside:
            beside = next(lines, None)
            if beside is None:
                raise DataError(f"{path} has {counted(self._lines - 1, 'line')} but {self._name} has more; {_ONE_EACH}")
            place = f"{path}, line {self._lines}"
            for field, value in read(beside, place).items():
                if field in fields:
                    raise also_given(field, place, where)
                fields[field] = value
                where = place
        return Request(where=where, **fields)


_ONE_EACH = "there must be one for each line"


def _count(path: str) -> int:
    return sum(1 for _ in read_lines(path, undecodable=Undecodable("empty")))


def _columns(line: str, where: str) -> Fields:
    """Text and required phrases, separated by tabs, as in fairseq."""
    text, *phrases = line.split("\t")
    return {_TEXT: text, "required": tuple(phrases)} if phrases else {_TEXT: text}


def _object(line: str, where: str) -> Fields:
    """A JSON object with the line's text and wishes; a blank line is an empty text."""
    found = read_object(line, where) if line.strip() else {_TEXT: ""}
    if _TEXT not in found:
        raise DataError(f"{where}: the key 'text' is missing")
    return {_TEXT: on_one_line(text_of(found.pop(_TEXT), where, _TEXT)), **wishes_of(found, where, also=(_TEXT,))}


FORMATS: Final[dict[str, Callable[[str, str], Fields]]] = {
    "text": lambda line, where: {_TEXT: line},
    "tsv": _columns,
    "jsonl": _object,
}
"""Formats of input lines."""


_KNOWN = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}]"
_UNKNOWN = "{desc}: {n_fmt} lines [{elapsed}, {rate_noinv_fmt}]"
_ECHO = "^C"
"""What a terminal echoes for Ctrl-C, at the end of the bar."""


class LinesBar:
    """A bar of lines on standard error, drawn within a `with` block; it moves with each batch."""

    def __init__(
        self, total: int | None, *, shown: bool, processes: int = 1, done: int = 0, doing: str = "translating"
    ) -> None:
        """`total`: number of lines, None if unknown; `done`: how many of these were translated before.

        Each of `processes` translates as much of a window as this one.
        """
        self._total = total
        self._doing = doing
        self._shown = shown
        self._processes = processes
        self._before = self._done = done
        self._window = self._begun = 0
        self._bar: Any = None

    def __enter__(self) -> LinesBar:
        if not self._shown:
            return self
        from tqdm import tqdm  # imported late: most output goes to files and needs no bar

        self._bar = tqdm(
            total=self._total,
            initial=self._done,
            desc=self._doing,
            unit=" lines",
            leave=False,
            ncols=(columns(sys.stderr) or USUAL_COLUMNS) - len(_ECHO) - 1,
            smoothing=0,  # batches of short and long sentences take turns
            bar_format=_UNKNOWN if self._total is None else _KNOWN,
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is None:
            return
        with contextlib.suppress(OSError):  # the terminal has been closed
            self._bar.close()
            # Also erase what the terminal has echoed after the bar.
            sys.stderr.write(" " * ((self._bar.ncols or 0) + len(_ECHO)) + "\r")
            sys.stderr.flush()

    def window(self, lines: int) -> None:
        """The next window has this many lines; all lines before it are done."""
        self._before += self._window
        self._window, self._begun = lines, 0
        self._show(self._before)

    def batch(self, sentences: int) -> None:
        """The next batch has this many sentences of the window; the batches before it are done."""
        # Each part of a long line counts as a sentence, so there can be more sentences than lines.
        self._show(self._before + min(self._window, self._begun))
        self._begun += sentences * self._processes

    def _show(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(done - self._bar.n)


def bar_for(
    path: str | None, output: BinaryIO, *, wanted: bool, processes: int, doing: str = "translating"
) -> LinesBar:
    """A bar for the lines of a file, or of standard input for None, whose translations go to `output`.

    It is shown if it is `wanted`, standard error is a terminal, and nothing else uses that terminal: no translations
    are written to it and no input is typed.
    """
    is_typed = path is None and sys.stdin.isatty()
    shown = wanted and sys.stderr.isatty() and not is_typed and not output.isatty()
    return LinesBar(line_count(path) if shown else None, shown=shown, processes=processes, doing=doing)
