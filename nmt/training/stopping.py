"""When and why training ends: limits of steps, epochs, patience and time, signals, and how long it still takes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NamedTuple

from nmt.errors import counted
from nmt.training.state import Progress, Ranking


class InterruptedValidationError(Exception):
    """A signal asked to stop in the middle of a validation."""


@dataclass(frozen=True)
class Ending:
    """Why training ends, in words, and what follows from it."""

    reason: str
    finished: bool
    """The run reached its goal: the same command has nothing more to do."""
    exit_code: int = 0
    validates: bool = True
    """Whether the last weights are validated before they are saved."""
    logs_rest: bool = True
    """Whether the updates since the last log line get a line if training is `finished`. If not, a run resumed with a
    larger budget logs the same lines as a single run with that budget."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much time one command may take; what is None does not limit."""

    deadline: float | None = None
    """Moment on `time.monotonic()`'s clock."""
    cpu_seconds: float | None = None
    """CPU time of the run, including earlier commands."""

    @classmethod
    def of_minutes(cls, wall: float | None, cpu: float | None, *, started: float) -> Budget:
        """For a command that was `started` at a moment on `time.monotonic()`'s clock."""
        return cls(
            deadline=None if wall is None else started + 60 * wall, cpu_seconds=None if cpu is None else 60 * cpu
        )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long training lasts; what is None does not limit."""

    max_steps: int | None = None
    max_epochs: int | None = None
    patience: int | None = None
    budget: Budget = Budget()

    def described(self, *, used_cpu_seconds: float = 0.0) -> str:
        """In words; `used_cpu_seconds`: of the run, before this command."""
        limits = []
        if self.max_steps is not None:
            limits.append(f"update {self.max_steps}")
        if self.max_epochs is not None:
            limits.append(f"epoch {self.max_epochs}")
        if self.patience is not None:
            limits.append(f"{counted(self.patience, 'validation')} without a new best")
        if self.budget.deadline is not None:
            seconds = self.budget.deadline - time.monotonic()
            left = f"{seconds / 60:.1f} minutes from now" if seconds >= 60 else f"{seconds:.0f} seconds from now"
            limits.append(left if seconds > 0 else "the time limit, which has passed already")
        if self.budget.cpu_seconds is not None:
            before = f", of which {_amount(used_cpu_seconds)} were used before" if used_cpu_seconds else ""
            limits.append(f"{_amount(self.budget.cpu_seconds, 'CPU ')} are used{before}")
        return "training until " + " or ".join(limits)

    def time_is_up(self) -> bool:
        """Whether the deadline has passed."""
        return self.budget.deadline is not None and time.monotonic() >= self.budget.deadline

    def share(self, progress: Progress) -> float:
        """The finished share of training, by the nearest limit: 1 or more at the end, 0 without any limit.

        Patience and deadlines do not count: patience is unpredictable, and a run ended by a deadline is resumed later.
        """
        used = (
            (progress.step, self.max_steps),
            (progress.epochs_done(), self.max_epochs),
            (progress.cpu_seconds, self.budget.cpu_seconds),
        )
        return max((done / most for done, most in used if most), default=0.0)

    def reached(self, progress: Progress, ranking: Ranking, *, late: bool = False) -> Ending | None:
        """The limit that has been reached, None to continue; `late`: the time is up, for all processes of the run."""
        if self.max_steps is not None and progress.step >= self.max_steps:
            return Ending(f"training.max_steps = {self.max_steps} is reached", finished=True)
        if self.max_epochs is not None and progress.epoch > self.max_epochs:
            return Ending(f"training.max_epochs = {self.max_epochs} is reached", finished=True)
        if self.patience is not None and ranking.without_best >= self.patience:
            reason = f"no better {ranking.metric} in {counted(ranking.without_best, 'validation')}"
            return Ending(f"{reason} (training.patience = {self.patience})", finished=True)
        if self.budget.cpu_seconds is not None and progress.cpu_seconds >= self.budget.cpu_seconds:
            reason = f"the budget of {_amount(self.budget.cpu_seconds, 'CPU ')} is used"
            return Ending(reason, finished=True, logs_rest=False)
        if late:
            return Ending("the time limit is reached", finished=False)
        return None


def _amount(seconds: float, kind: str = "") -> str:
    value, unit = (seconds / 60, "minutes") if seconds >= 60 else (seconds, "seconds")
    return f"{value:,.1f}".removesuffix(".0") + f" {kind}{unit}"


@dataclass
class StopRequest:
    """Set by the first SIGTERM, SIGHUP or Ctrl-C; the second Ctrl-C ends at once."""

    signal_number: int | None = field(default=None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal_number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number

    @contextmanager
    def listening(self) -> Iterator[StopRequest]:
        """Turn these signals into a request while the block runs; outside the main thread do nothing.

        SIGHUP comes when a terminal is closed. Under nohup it is ignored, and stays so.
        """
        previous = {}
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue
                previous[number] = signal.signal(number, self._handle)
        except ValueError:  # only the main thread may; an embedding program handles signals itself
            pass
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


class Outlook(NamedTuple):
    """How far training has come, and when it will end."""

    seconds: float | None
    """Time until the end, if known."""
    share: float | None
    """The finished share of the way to this end."""
    last: int | None
    """The last update, if that and not the time limit is this end."""


class TimeLeft:
    """Updates over time since the process began to train; what earlier processes did is left out.

    They may have run on another machine, or at the same time as other work.
    """

    def __init__(self, *, step: int) -> None:
        """`step`: updates done before now."""
        self._first = step
        self._started = time.monotonic()

    def outlook(self, *, step: int, last: int | None, deadline: float | None) -> Outlook:
        """After update `step`, on the way to update `last` or the `deadline` on `time.monotonic()`'s clock.

        The end is whichever comes first. Its time is unknown where neither is set, or only `last` and no update has
        been done yet.
        """
        now = time.monotonic()
        passed = now - self._started
        by_update = None
        if last is not None and step > self._first:
            by_update = max(0, last - step) * passed / (step - self._first)
        by_limit = None if deadline is None else max(0.0, deadline - now)
        if by_limit is not None and (by_update is None or by_limit < by_update):
            return Outlook(by_limit, passed / (passed + by_limit) if passed else 0.0, None)
        return Outlook(by_update, None if last is None else min(1.0, step / last), last)

    def deadline(self, used: float, *, first: float, last: float | None) -> float | None:
        """The time on `time.monotonic()`'s clock at which `used` will reach `last`, at the present rate.

        It was `first` when this process began to train. None without `last`, or while nothing more has been used.
        """
        if last is None or used <= first:
            return None
        now = time.monotonic()
        return now + max(0.0, last - used) * (now - self._started) / (used - first)


def duration(seconds: float) -> str:
    """`seconds` as people say them: 45 s, 12 min, 3 h 05 min, 2 d 04 h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"
