"""Where training reports: log.jsonl for programs, train.log and stderr for people, the last line of a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from tqdm import tqdm
from tqdm.utils import disp_len

from nmt.errors import DataError, NmtError
from nmt.files import LARGEST_LOG, is_file, own_file, read_file, reason, replace_file
from nmt.interop.run_layout import EVENTS as EVENTS
from nmt.interop.run_layout import read_events as read_events
from nmt.system import USUAL_COLUMNS, columns, wrapped
from nmt.training.state import Interval, Outlook, duration

TEXT = "train.log"
TENSORBOARD = "tensorboard"
SAMPLE_HANG = 12
"""Columns from the name of a sample's part to its text."""
DETAILS_EVERY = 60.0
"""Seconds between two blocks of details on a terminal."""
_LEFT_OUT = f"  (samples: every {DETAILS_EVERY:.0f} s at most here; all are in {TEXT} and {EVENTS})"
NO_TENSORBOARD = "TensorBoard is not installed; pip install 'nmt-recurrent[tensorboard]'"


class RunLog:
    """The logs of one run directory; a new process continues them.

    Every line is flushed when it is written, so a killed process loses none.
    """

    def __init__(self, run: Path, *, tensorboard: bool = False, writes: bool = True) -> None:
        """Files are made with the first line for them. NmtError if TensorBoard is asked for and not installed.

        `writes=False`: nothing is written, shown or removed, as another process does it.
        """
        self._writer_class: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise NmtError(f"training.tensorboard: {NO_TENSORBOARD}") from error
            self._writer_class = SummaryWriter
        self._run = run
        self._files: dict[str, TextIO] = {}
        self._scalars: Any = None
        self._quiet = not writes
        self._writes = writes
        self._details_shown: float | None = None
        self._said_left_out = False

    def say(self, text: str, *, figures: bool = False, hang: int = 2) -> None:
        """Write lines for people, with the time of day, to stderr and train.log.

        On a terminal they are wrapped at its width, with continuation lines indented by `hang` columns; a line of
        `figures` is cut to fit.
        """
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        for line in text.split("\n"):
            self._write(TEXT, f"{stamp} {line}\n")
            self._show(f"{stamp[11:]} ", line, figures=figures, hang=hang)

    def say_details(self, lines: Sequence[str]) -> None:
        """Write a block of lines; a terminal gets one at most every DETAILS_EVERY seconds."""
        if not lines:
            return
        now, quiet = time.monotonic(), self._quiet
        due = self._details_shown is None or now - self._details_shown >= DETAILS_EVERY
        if due or columns(sys.stderr) is None:
            self._details_shown = now
            self.say("\n".join(lines), hang=SAMPLE_HANG)
            return
        self._quiet = True
        self.say("\n".join(lines))
        self._quiet = quiet
        if not self._said_left_out:
            self._said_left_out = True
            self._show(time.strftime("%H:%M:%S "), _LEFT_OUT)

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        """Append one line {"event": event, ...} to log.jsonl; values that are not finite become null.

        `fields` should hold "step"; its other numbers also go to TensorBoard as `event/name`.
        """
        line = {"event": event, **{key: finite(value) for key, value in fields.items()}}
        self._write(EVENTS, json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        if self._writer_class is not None:
            if self._scalars is None:  # what older files hold after this step is hidden, because it is done again
                self._scalars = self._writer_class(str(self._run / TENSORBOARD), purge_step=fields["step"] + 1)
            for key, value in line.items():
                if isinstance(value, int | float) and not isinstance(value, bool) and key != "step":
                    self._scalars.add_scalar(f"{event}/{key}", value, fields["step"])
            self._scalars.flush()

    def rewind(self, step: int, *, validated: bool = True) -> int:
        """Remove the lines logged after `step`, because they will be repeated and logged again; return how many.

        A killed process may have logged updates after its last checkpoint, or a validation of that step if it was not
        `validated` when the checkpoint was saved. An incomplete last line, left by a full disk or a crash of the
        machine, is removed as well.
        """
        return self._keep(lambda at, event: at < step or (at == step and (validated or event != "validation")))

    def withdraw(self, kinds: Container[str], *, step: int) -> None:
        """Take out the lines of these events at `step`, because they are written again."""
        self._keep(lambda at, event: at != step or event not in kinds)

    def close(self) -> None:
        """Close all files."""
        for stream in self._files.values():
            with contextlib.suppress(OSError):  # a full disk, which the write before has reported
                stream.close()
        self._files.clear()
        if self._scalars is not None:
            self._scalars.close()
            self._scalars = None

    def _keep(self, wanted: Callable[[float, Any], bool]) -> int:
        """Take the other lines out of log.jsonl, by step and event of each; return how many they were."""
        path = self._run / EVENTS
        if not self._writes or not is_file(path):
            return 0
        if EVENTS in self._files:
            self._files.pop(EVENTS).close()
        lines = io.StringIO(read_file(path, largest=LARGEST_LOG).decode("utf-8", "replace")).readlines()
        kept = [line for line in lines if wanted(*_place(line))]
        if len(kept) < len(lines):
            try:
                replace_file(path, "".join(kept).encode())
            except OSError as error:
                raise DataError(f"{path}: cannot be written ({reason(error)})") from error
        return len(lines) - len(kept)

    def _write(self, name: str, text: str) -> None:
        if not self._writes:
            return
        path = self._run / name
        try:
            if name not in self._files:
                stream = open(path, "a", encoding="utf-8", buffering=1, opener=own_file)  # noqa: SIM115
                self._files[name] = stream
            self._files[name].write(text)
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({reason(error)})") from error

    def _show(self, stamp: str, line: str, *, figures: bool = False, hang: int = 2) -> None:
        if self._quiet:
            return
        width = columns(sys.stderr)
        line = stamp + line
        if width is not None:
            inset = len(line) - len(line[len(stamp) :].lstrip())
            line = shortened(line, width) if figures else wrapped(line, width, indent=inset + hang)
            line = CLEAR_ROW + line
        try:
            tqdm.write(line, file=sys.stderr)
        except OSError:  # the reader, such as `head` or a terminal, has gone; training continues
            self._quiet = True


class _Warnings(logging.Handler):
    """Says in a log what is warned of."""

    def __init__(self, log: RunLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.say(record.getMessage())


@contextlib.contextmanager
def warnings_in(log: RunLog) -> Iterator[None]:
    """In the block, warnings of this package, such as a unit without kernels, are written to the log."""
    handler, logger = _Warnings(log), logging.getLogger("nmt")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def finite(value: Any) -> Any:
    """`value` with NaN and infinity, which JSON has no words for, replaced by None, and floats shortened."""
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return value


def _place(line: str) -> tuple[float, Any]:
    """The step and the event of a line of log.jsonl; an infinite step where the line is broken."""
    try:
        fields = json.loads(line if line.endswith("\n") else "")
        return float(fields["step"]), fields.get("event")
    except (ValueError, KeyError, TypeError):
        return math.inf, None


def memory_mb() -> float:
    """Most memory this process has held so far, in MiB: on the GPU if it uses one, else resident."""
    import resource

    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return round(torch.cuda.max_memory_allocated() / 2**20, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


INTERVAL = 0.2
"""Seconds between two changes of the bar."""
SHORTEST_BAR = 6
CLEAR_ROW = "" if os.environ.get("TERM") == "dumb" else "\x1b[K"
"""Takes away what stands in the row of the cursor, such as the ^C that a terminal has echoed."""


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
        # Braces are doubled, as the format of tqdm takes them.
        name, text = (part.replace("{", "{{").replace("}", "}}") for part in (start, text))
        bar = "" if share is None else " {bar} "
        self._shown = time.monotonic()
        try:
            if self._bar is None:
                self._bar = tqdm(total=1.0, leave=False, bar_format="{desc}", desc=start, file=sys.stderr)
            self._bar.ncols = width
            self._bar.n = min(share or 0.0, 1.0)
            self._bar.bar_format = f"{name}{bar}{text}" if bar or not text else f"{name}  {text}"
            self._bar.refresh()
        except (OSError, ValueError):  # the terminal has been closed; training continues, or ends by its own rules
            self._hidden = True
