"""The prompt of nmt-translate for a person who types: a line at a time, with editing and a history."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

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
