"""A bar on a terminal while lines are translated."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from nmt.cli.lines import line_count
from nmt.system import USUAL_COLUMNS, columns

if TYPE_CHECKING:
    pass

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
