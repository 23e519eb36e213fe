"""Training on a terminal: the line at its foot with progress and remaining time."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from tqdm import tqdm
from tqdm.utils import disp_len

from nmt.system import USUAL_COLUMNS, columns
from nmt.training.state import Interval
from nmt.training.time_left import Outlook, duration

INTERVAL = 0.2
"""Seconds between two changes of the bar."""
SHORTEST_BAR = 6
CLEAR_ROW = "" if os.environ.get("TERM") == "dumb" else "\x1b[K"
"""Takes away what stands in the row of the cursor, such as the ^C that a terminal has echoed."""
_BAR = "{bar}"


def shortened(line: str, width: int) -> str:
    """As much of `line` as fits in `width` columns, cut where two spaces stand; its first part at least."""
    while disp_len(line) > width and "  " in line.strip():
        line = line.rpartition("  ")[0].rstrip()
    return line


class ProgressBar:
    """The line at the foot of a terminal; there is none where stderr is a file or a pipe.

    It is gone when it is closed, and nothing is left of it.
    """

    def __init__(self, *, hidden: bool = False) -> None:
        """Nothing is shown before there is something to show."""
        self._hidden = hidden or columns(sys.stderr) is None
        self._bar: tqdm[NoReturn] | None = None
        self._shown = 0.0

    def is_due(self) -> bool:
        """Whether it is time to show something new."""
        return not self._hidden and time.monotonic() - self._shown >= INTERVAL

    def show(self, step: int, interval: Interval, outlook: Outlook) -> None:
        """How training stands after update `step`; loss and speed are means since the last line of the log."""
        summary = interval.summary()
        loss, speed = summary["loss"], summary["target_tokens_per_second"]
        ends = [f"{outlook.share:4.0%}"] if outlook.share is not None else []
        ends += [f"loss {loss:.3f}"] if loss is not None else []
        ends += [f"{duration(outlook.seconds)} left"] if outlook.seconds is not None else []
        ends += [f"{speed:,.0f} tok/s"] if speed else []
        last = "" if outlook.last is None else f"/{outlook.last:,}"
        self._draw(f"update {step:,}{last}", ends, share=outlook.share)

    def task(self, name: str, total: int, *, unit: str) -> Callable[[int], None]:
        """Show other work instead, until the next `show`; the returned function is called with the progress of that
        work."""
        done = 0

        def advance(more: int) -> None:
            nonlocal done
            done += more
            if self.is_due():
                self._draw(name, [f"{done:,} of {total:,} {unit}"], share=done / max(total, 1))

        if not self._hidden:
            self._draw(name, [], share=None)
        return advance

    def close(self) -> None:
        """Take the bar away."""
        self._hidden = True
        if self._bar is not None:
            with contextlib.suppress(OSError):
                self._bar.close()

    def _draw(self, start: str, ends: list[str], *, share: float | None) -> None:
        width = (columns(sys.stderr) or USUAL_COLUMNS) - 3  # room for the ^C that a terminal echoes
        room = width - (0 if share is None else SHORTEST_BAR + 1)
        text = shortened("  ".join([start, *ends]), room).removeprefix(start).strip()
        bar = "" if share is None else f" {_BAR}"
        self._shown = time.monotonic()
        try:
            if self._bar is None:
                self._bar = tqdm(total=1.0, leave=False, bar_format="{desc}", desc=start, file=sys.stderr)
            self._bar.ncols = width
            self._bar.n = min(share or 0.0, 1.0)
            self._bar.bar_format = _braced(start) + bar + _braced(f"  {text}" if text and not bar else f" {text}")
            self._bar.refresh()
        except (OSError, ValueError):  # the terminal has been closed; training continues, or ends by its own rules
            self._hidden = True


def _braced(text: str) -> str:
    """`text` as tqdm's format takes it."""
    return text.replace("{", "{{").replace("}", "}}")
