"""Learning-rate schedules: their base, and those that recipes here begin with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator

from nmt.registry import SCHEDULES


def require(holds: bool, message: str) -> None:
    """Raise ValueError(message) unless `holds`; `message` starts with the name of the option."""
    if not holds:
        raise ValueError(message)


def allowed(values: str, holds: Callable[[float], bool]) -> AfterValidator:
    """The check of an option: ValueError, with the allowed `values` in words, for a value that does not hold."""

    def check(value: float) -> float:
        require(holds(value), f"must be {values}, not {value}")
        return value

    return AfterValidator(check)


Amount = Annotated[float, allowed("0 or more", lambda value: 0 <= value < math.inf)]
Above0 = Annotated[float, allowed("above 0", lambda value: 0 < value < math.inf)]
Share = Annotated[float, allowed("0 or more and below 1", lambda value: 0 <= value < 1)]
Decay = Annotated[float, allowed("above 0 and at most 1", lambda value: 0 < value <= 1)]
Steps = Annotated[int, allowed("0 or more", lambda value: value >= 0)]
Count = Annotated[int, allowed("above 0", lambda value: value > 0)]


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """Options of all schedules: the range of rates."""

    min_lr: Amount = 0.0
    """Smallest rate ever used. Zero: `min_lrate`."""
    max_lr: float = 1.0
    """Largest rate ever used. Zero: `max_lrate`."""

    def __post_init__(self) -> None:
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
        highest: float | None = self.options.max_lr
        return self.lr if highest is None else float(highest)


def warm_up(step: int, warmup_steps: int) -> float:
    """Factor of a linear warm-up that ends at 1 with update number `warmup_steps` (from 1)."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0


@SCHEDULES.register("constant")
class Constant(Schedule):
    """The same rate always, after an optional linear warm-up.

    lr * min(1, (s + 1) / warmup_steps). `training.lr` is that rate. Zero: `vanilla`.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        warmup_steps: Steps = 0
        """Updates during which the rate grows to lr."""

    def _rate_at(self, step: int) -> float:
        return self.lr * warm_up(step, self.options.warmup_steps)


@SCHEDULES.register("inverse_sqrt")
class InverseSqrt(Schedule):
    """Linear warm-up to lr, then lr * sqrt(warmup_steps / (s + 1)), as in fairseq.

    `training.lr` is the peak, reached in update number `warmup_steps`. The first update already has a rate
    above zero (fairseq starts from its `warmup_init_lr`).
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        warmup_steps: Count = 200
        """Updates up to the peak."""

    def _rate_at(self, step: int) -> float:
        warmup: int = self.options.warmup_steps
        return self.lr * min((step + 1) / warmup, math.sqrt(warmup / (step + 1)))


@SCHEDULES.register("budgeted")
class Budgeted(Schedule):
    """Linear warm-up, then a fall from lr to min_lr that ends with the training (Li et al., ICLR 2020).

        low + (lr - low) (1 + cos(pi * share)) / 2,  low = min_lr, or with shape linear  lr - (lr - low) share

    `share` is the finished share of training: the largest of updates / max_steps, epochs / max_epochs and, with
    `--max-cpu-minutes`, CPU time / budget. With CPU time, the rate depends on the speed of the machine, so two runs
    differ. A run resumed with a larger budget is at a smaller share, and its rate rises again.
    """

    needs_end = True

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        warmup_steps: Steps = 400
        """Updates during which the rate grows."""
        shape: Literal["cosine", "linear"] = "cosine"
        """How the rate falls: `cosine` or `linear`."""

    _share = 0.0

    def use_share(self, share: float) -> None:
        """Take note; more than 1 is 1."""
        self._share = min(1.0, share)

    def _rate_at(self, step: int) -> float:
        low = min(float(self.options.min_lr), self.lr)
        left = 1.0 - self._share if self.options.shape == "linear" else 0.5 * (1.0 + math.cos(math.pi * self._share))
        return warm_up(step, self.options.warmup_steps) * (low + (self.lr - low) * left)
