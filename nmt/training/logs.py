"""Where training reports: log.jsonl for programs, train.log and stderr for people, TensorBoard, a progress bar."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

from tqdm import tqdm

from nmt.errors import DataError, NmtError
from nmt.files.errors import reason
from nmt.files.safe import LARGEST_LOG, own_file
from nmt.files.whole import is_file, read_file, replace_file
from nmt.training.state import Interval

EVENTS = "log.jsonl"
TEXT = "train.log"
TENSORBOARD = "tensorboard"
_NO_TENSORBOARD = "TensorBoard is not installed; pip install 'nmt-recurrent[tensorboard]'"


class ScalarWriter(Protocol):
    """The part of TensorBoard's SummaryWriter that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Write one value of a curve."""

    def flush(self) -> None:
        """Bring it to disk."""

    def close(self) -> None:
        """Finish the file."""


class RunLog:
    """The logs of one run directory; a new process continues them.

    Every line is flushed when it is written, so that a killed process loses none.
    """

    def __init__(self, run: Path, *, tensorboard: bool = False, quiet: bool = False) -> None:
        """Files are made with the first line for them. NmtError if TensorBoard is asked for and not installed."""
        if tensorboard:
            _writer_class()
        self._run = run
        self._files: dict[str, TextIO] = {}
        self._tensorboard = tensorboard
        self._scalars: ScalarWriter | None = None
        self._quiet = quiet

    def say(self, text: str) -> None:
        """Write lines for people, with the time of day, to stderr and train.log."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        for line in text.split("\n"):
            self._write(TEXT, f"{stamp} {line}\n")
            self._show(f"{stamp[11:]} {line}")

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        """Append one line {"event": event, ...} to log.jsonl; what is not finite becomes null.

        `fields` should hold "step"; its other numbers also go to TensorBoard as `event/name`.
        """
        line = {"event": event, **{key: finite(value) for key, value in fields.items()}}
        self._write(EVENTS, json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        if self._tensorboard:
            self._scalars = self._scalars or self._new_scalars(fields["step"])
            for key, value in line.items():
                if isinstance(value, int | float) and not isinstance(value, bool) and key != "step":
                    self._scalars.add_scalar(f"{event}/{key}", value, fields["step"])
            self._scalars.flush()

    def rewind(self, step: int, *, validated: bool = True) -> int:
        """Take out what was logged after `step`, because it will be done and logged again; return how many lines.

        A process that was killed has logged updates that its last checkpoint does not hold, or a validation of that
        very step if it was not `validated` when the checkpoint was saved. Half a line at the end, left by a full disk
        or a crash of the machine, goes as well.
        """
        undone = () if validated else ("validation",)
        return self._keep(lambda line: _step_of(line) < step or (_step_of(line) == step and not _is_any(line, undone)))

    def withdraw(self, kinds: Container[str], *, step: int) -> None:
        """Take out the lines of these events at `step`, because they are written again."""
        self._keep(lambda line: _step_of(line) != step or not _is_any(line, kinds))

    def close(self) -> None:
        """Close all files."""
        for stream in self._files.values():
            with contextlib.suppress(OSError):  # a full disk, which the write before has reported
                stream.close()
        self._files.clear()
        if self._scalars is not None:
            self._scalars.close()
            self._scalars = None

    def _keep(self, wanted: Callable[[str], bool]) -> int:
        """Take the other lines out of log.jsonl; return how many they were."""
        path = self._run / EVENTS
        if not is_file(path):
            return 0
        if EVENTS in self._files:
            self._files.pop(EVENTS).close()
        with io.TextIOWrapper(
            io.BytesIO(read_file(path, largest=LARGEST_LOG)), encoding="utf-8", errors="replace"
        ) as stream:
            lines = stream.readlines()
        kept = [line for line in lines if wanted(line)]
        if len(kept) < len(lines):
            try:
                replace_file(path, "".join(kept).encode())
            except OSError as error:
                raise DataError(f"{path}: cannot be written ({reason(error)})") from error
        return len(lines) - len(kept)

    def _new_scalars(self, step: int) -> ScalarWriter:
        """A TensorBoard file; what older ones hold after `step` is hidden, because it is done again."""
        writer: ScalarWriter = _writer_class()(str(self._run / TENSORBOARD), purge_step=step + 1)
        return writer

    def _write(self, name: str, text: str) -> None:
        path = self._run / name
        try:
            if name not in self._files:
                stream = open(path, "a", encoding="utf-8", buffering=1, opener=own_file)  # noqa: SIM115
                self._files[name] = stream
            self._files[name].write(text)
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({reason(error)})") from error

    def _show(self, line: str) -> None:
        if self._quiet:
            return
        try:
            tqdm.write(line, file=sys.stderr)
        except OSError:  # whoever read along, such as `head` or a terminal, has gone; training goes on
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
    """In the block what this package warns of, such as that no kernel knows a unit, is said in the log."""
    handler, logger = _Warnings(log), logging.getLogger("nmt")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class SilentLog(RunLog):
    """The log of a process that leaves it to another one to report."""

    def say(self, text: str) -> None:
        """Do nothing."""

    def record(self, event: str, fields: Mapping[str, Any]) -> None:
        """Do nothing."""

    def rewind(self, step: int, *, validated: bool = True) -> int:
        """Do nothing."""
        return 0

    def withdraw(self, kinds: Container[str], *, step: int) -> None:
        """Do nothing."""


def read_events(run: Path) -> list[dict[str, Any]]:
    """All complete lines of RUN/log.jsonl."""
    path = run / EVENTS
    if not is_file(path):
        raise DataError(f"{path}: no such file; is {run} a run directory?")
    # Not splitlines: a sample translation may hold U+2028 and its like.
    lines = read_file(path, largest=LARGEST_LOG).decode("utf-8", "replace").split("\n")
    return [json.loads(line) for line in lines if line.endswith("}")]


def finite(value: Any) -> Any:
    """`value` with NaN and infinity, which JSON has no words for, replaced by None, and floats shortened."""
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return value


def _step_of(line: str) -> float:
    """The step of a line of log.jsonl; infinite where the line is broken."""
    try:
        return float(json.loads(line)["step"]) if line.endswith("\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf


def _is_any(line: str, kinds: Container[str]) -> bool:
    """Whether a whole line of log.jsonl tells of one of these events."""
    return json.loads(line).get("event") in kinds


def _writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise NmtError(f"training.tensorboard: {_NO_TENSORBOARD}") from error
    return SummaryWriter


def tensorboard_problem() -> str | None:
    """What is said where TensorBoard is missing; looked for without importing it, which takes seconds."""
    return None if importlib.util.find_spec(TENSORBOARD) else _NO_TENSORBOARD


class ProgressBar:
    """Updates done, target tokens a second and the remaining time, on stderr when that is a terminal."""

    def __init__(self, *, total: int | None, done: int, hidden: bool = False) -> None:
        shown = sys.stderr.isatty() and not hidden
        self._bar = tqdm(
            total=total, initial=done, unit="update", disable=not shown, dynamic_ncols=True, smoothing=0.05
        )

    def show(self, done: int, interval: Interval) -> None:
        """Bring the bar up to `done` updates; loss and speed are means since the last line of the log."""
        if self._bar.disable:
            return
        summary = interval.summary()
        if summary["loss"] is not None:
            speed = summary["target_tokens_per_second"] or 0
            self._bar.set_postfix_str(f"loss {summary['loss']:.3f}, {speed:,.0f} target tokens/s", refresh=False)
        try:
            self._bar.update(done - self._bar.n)
        except OSError:  # the terminal has been closed; training goes on, or ends by its own rules
            self._bar.disable = True

    def close(self) -> None:
        """Leave the bar where it is."""
        with contextlib.suppress(OSError):
            self._bar.close()


def memory_mb() -> float:
    """Most memory this process has held so far, in MiB: on the GPU if it uses one, else resident."""
    import resource

    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return round(torch.cuda.max_memory_allocated() / 2**20, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
