"""Learning-rate schedules: their base, `constant`, `epoch` and `score`; the others are in step_schedules.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.registry import SCHEDULES


def require(holds: bool, message: str) -> None:
    """Raise ValueError(message) unless `holds`; `message` starts with the name of the option."""
    if not holds:
        raise ValueError(message)


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """Options of all schedules: the range of rates."""

    min_lr: float = 0.0
    """Smallest rate ever used. Zero: `min_lrate`."""
    max_lr: float = 1.0
    """Largest rate ever used. Zero: `max_lrate`."""

    def __post_init__(self) -> None:
        require(0 <= self.min_lr < math.inf, f"min_lr: must be 0 or more, not {self.min_lr}")
        require(self.max_lr >= self.min_lr, f"max_lr: must not be below min_lr ({self.min_lr}), is {self.max_lr}")


class Schedule:
    """Base of all schedules; its own rate never changes.

    The rate does not depend on the clock or the model, only on the number of updates and the arguments of `use_share`,
    `end_epoch` and `end_validation`, and `state_dict` holds all of these.
    """

    Options: ClassVar[type] = ScheduleOptions
    needs_validation: ClassVar[bool] = False
    """Whether the rate follows from validation scores."""
    needs_end: ClassVar[bool] = False
    """Whether the rate depends on the finished share of training, so that its end must be known."""

    def __init__(self, *, lr: float, hidden_size: int, options: Any = None) -> None:
        """`lr` is `training.lr`, `hidden_size` the width of the model, `options` an instance of `Options`."""
        self.lr = lr
        self.hidden_size = hidden_size
        self.options = self.Options() if options is None else options
        self._rate = lr

    @classmethod
    def peak(cls, *, lr: float, hidden_size: int, options: Any) -> float:
        """The highest rate there can be before [min_lr, max_lr] cuts it off; arguments as for the constructor."""
        return lr

    @property
    def rate(self) -> float:
        """The rate set last, within [min_lr, max_lr]; after construction, `lr` itself."""
        return max(min(self._rate, self._ceiling()), float(self.options.min_lr))

    def at_step(self, step: int) -> float:
        """Set and return the rate of the next update, when `step` updates (from 0) have been done."""
        self._rate = self._rate_at(step)
        return self.rate

    def use_share(self, share: float) -> None:
        """Say how much of the training is done before the next update, 1 being the end; asked for by `needs_end`."""

    def end_epoch(self, epoch: int | None = None) -> None:
        """Say that an epoch has ended: its number, from 1, or None where it is not known."""

    def end_validation(self, score: float, *, higher_is_better: bool) -> None:
        """Say what a validation gave, and whether a higher (BLEU) or a lower (loss) `score` is better."""

    def forget_scores(self) -> None:
        """Say that later scores cannot be compared with earlier ones, being measured otherwise."""

    def state_dict(self) -> dict[str, Any]:
        """The numbers that `load_state_dict` restores, without the options."""
        return {"rate": self._rate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict` of the same kind of schedule."""
        self._rate = state["rate"]

    def _rate_at(self, step: int) -> float:
        """The rate before clamping; here what epochs and validations made of it."""
        return self._rate

    def _ceiling(self) -> float:
        return float(self.options.max_lr)


def warm_up(step: int, warmup_steps: int) -> float:
    """Factor of a linear warm-up that ends at 1 with update number `warmup_steps` (from 1)."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0


@SCHEDULES.register("constant")
class Constant(Schedule):
    """The same rate always, after an optional linear warm-up: lr * min(1, (s + 1) / warmup_steps).

    `training.lr` is that rate. Zero: `vanilla`.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        """Options of `constant`."""

        warmup_steps: int = 0
        """Updates during which the rate grows linearly to lr; 0 starts at lr."""

        def __post_init__(self) -> None:
            super().__post_init__()
            require(self.warmup_steps >= 0, f"warmup_steps: must be 0 or more, not {self.warmup_steps}")

    def _rate_at(self, step: int) -> float:
        return self.lr * warm_up(step, self.options.warmup_steps)


@SCHEDULES.register("epoch")
class Epoch(Schedule):
    """lr * decay**e after epoch e (from 1). `training.lr` is the rate of the first epoch."""

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        """Options of `epoch`."""

        decay: float = 0.5
        """Factor by which the rate shrinks with each epoch. Zero: `lrate_decay`."""

        def __post_init__(self) -> None:
            super().__post_init__()
            require(0 < self.decay <= 1, f"decay: must be above 0 and at most 1, not {self.decay}")

    def end_epoch(self, epoch: int | None = None) -> None:
        """Shrink the rate; without a number to lr * decay, however often it is called (as Zero)."""
        self._rate = self.lr * self.options.decay ** (1 if epoch is None else epoch)


@SCHEDULES.register("score")
class Score(Schedule):
    """The rate shrinks when validation stops improving. `training.lr` is the rate at the start.

    A score that is not strictly better than the best is a bad one; `patience` bad ones since the last best, or
    since the last decay, multiply the rate by `decay`. The rate itself is clamped only where it is read.
    """

    needs_validation = True

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        """Options of `score`."""

        decay: float = 0.5
        """Factor by which the rate shrinks. Zero: `lrate_decay`."""
        patience: int = 1
        """Validations without a new best before it shrinks. Zero: `lrate_patience`."""

        def __post_init__(self) -> None:
            super().__post_init__()
            require(0 < self.decay <= 1, f"decay: must be above 0 and at most 1, not {self.decay}")
            require(self.patience > 0, f"patience: must be above 0, not {self.patience}")

    def __init__(self, *, lr: float, hidden_size: int, options: Any = None) -> None:
        super().__init__(lr=lr, hidden_size=hidden_size, options=options)
        self._best: float | None = None
        self._bad = 0

    def end_validation(self, score: float, *, higher_is_better: bool) -> None:
        """Count a bad score and shrink the rate at the last bad one allowed; NaN is a bad score."""
        value = score if higher_is_better else -score
        if value > (-math.inf if self._best is None else self._best):
            self._best, self._bad = value, 0
            return
        self._bad += 1
        if self._bad >= self.options.patience:
            self._rate, self._bad = self._rate * self.options.decay, 0

    def forget_scores(self) -> None:
        """The next score is the best; the rate stays."""
        self._best, self._bad = None, 0

    def state_dict(self) -> dict[str, Any]:
        """The rate, the best score (negated where lower is better) and the bad ones since."""
        return super().state_dict() | {"best": self._best, "bad": self._bad}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict` of this schedule; Zero cannot do this."""
        super().load_state_dict(state)
        self._best, self._bad = state["best"], state["bad"]


def build_schedule(name: str, *, lr: float, hidden_size: int, options: Any = None) -> Schedule:
    """Make the schedule registered as `name`.

    `options` is an instance of its `Options` (see `nmt.config.component_options`); None takes the defaults.
    Raises ConfigError for an unknown name.
    """
    schedule: Schedule = SCHEDULES.get(name)(lr=lr, hidden_size=hidden_size, options=options)
    return schedule
