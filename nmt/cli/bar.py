"""How many lines have been translated, on a terminal: a bar with speed and remaining time that is gone at the end."""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType
from typing import Any, BinaryIO

from nmt.cli.lines import line_count
from nmt.terminal import USUAL_COLUMNS, columns

_KNOWN = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}]"
_UNKNOWN = "{desc}: {n_fmt} lines [{elapsed}, {rate_noinv_fmt}]"
_ECHO = "^C"
"""What a terminal shows of Ctrl-C, at the end of the bar."""


class LinesBar:
    """A bar of lines on standard error, drawn within a `with` block; it moves with each batch."""

    def __init__(
        self, total: int | None, *, shown: bool, processes: int = 1, done: int = 0, doing: str = "translating"
    ) -> None:
        """`total`: lines to come, None if not known; `done`: of these, lines that were translated before.

        Each of `processes` has as much of a window as this one.
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
        from tqdm import tqdm  # late, as most output goes to files

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is None:
            return
        with contextlib.suppress(OSError):  # of a terminal that has been closed
            self._bar.close()
            # What the terminal has echoed behind the bar goes, too.
            sys.stderr.write(" " * ((self._bar.ncols or 0) + len(_ECHO)) + "\r")
            sys.stderr.flush()

    def window(self, lines: int) -> None:
        """So many lines are translated next; all before them are done."""
        self._before += self._window
        self._window, self._begun = lines, 0
        self._show(self._before)

    def batch(self, sentences: int) -> None:
        """A batch of so many sentences of the window begins; those before it are done."""
        # Parts of a long line are sentences, too, so that there may be more of them than lines.
        self._show(self._before + min(self._window, self._begun))
        self._begun += sentences * self._processes

    def _show(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(done - self._bar.n)


def bar_for(
    path: str | None, output: BinaryIO, *, wanted: bool, processes: int, doing: str = "translating"
) -> LinesBar:
    """A bar for the lines of a file, or of standard input for None, whose translations go to `output`.

    It is shown where it is `wanted` and has standard error, a terminal, to itself: no translation is written and
    nothing is typed in between.
    """
    is_typed = path is None and sys.stdin.isatty()
    shown = wanted and sys.stderr.isatty() and not is_typed and not output.isatty()
    return LinesBar(line_count(path) if shown else None, shown=shown, processes=processes, doing=doing)
