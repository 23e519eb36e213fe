"""Schedules of epochs and scores, and further curves over updates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from nmt.registry import SCHEDULES
from nmt.training.schedules import Amount, Count, Decay, Schedule, ScheduleOptions, Steps, allowed, require


@SCHEDULES.register("epoch")
class Epoch(Schedule):
    """lr * decay**e after epoch e (from 1). `training.lr` is the rate of the first epoch."""

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        decay: Decay = 0.5
        """Factor by which the rate shrinks with each epoch. Zero: `lrate_decay`."""

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
    _best: float | None = None
    _bad = 0

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        decay: Decay = 0.5
        """Factor by which the rate shrinks. Zero: `lrate_decay`."""
        patience: Count = 1
        """Validations without a new best before it shrinks. Zero: `lrate_patience`."""

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


@SCHEDULES.register("noam")
class Noam(Schedule):
    """lr * H**-0.5 * min((s + 1) * warmup_steps**-1.5, (s + 1)**-0.5) (Vaswani et al., NIPS 2017).

    `training.lr` is a factor, usually 1 or 2; the peak is lr / sqrt(H * warmup_steps), H the hidden size.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        warmup_steps: Count = 4000
        """Updates up to the peak. Zero: `warmup_steps`."""

    @classmethod
    def peak(cls, *, lr: float, hidden_size: int, options: Any) -> float:
        """The rate of update number `warmup_steps`."""
        peak: float = lr * (hidden_size * options.warmup_steps) ** -0.5
        return peak

    def _rate_at(self, step: int) -> float:
        updates, warmup = float(step + 1), float(self.options.warmup_steps)
        curve: float = min(updates * warmup**-1.5, updates**-0.5)
        scale: float = float(self.hidden_size) ** -0.5
        return self.lr * scale * curve


@SCHEDULES.register("gnmt+")
class GnmtPlus(Schedule):
    """Warm-up, plateau and exponential decay of RNMT+ (Chen et al., ACL 2018).

        lr * min(1 + s (n - 1) / (n p),  n,  n (2n)**((start - n s) / (end - start)))

    with n = replicas, p = warmup_steps, start = decay_start, end = decay_end.
    `training.lr` is the rate of the first update; the plateau is lr * replicas.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options(ScheduleOptions):
        warmup_steps: Count = 4000
        """p: the plateau is reached after replicas * warmup_steps updates. Zero: `warmup_steps`."""
        replicas: Count = 4
        """n: how many times lr the plateau is (in the paper, models trained in parallel). Zero: `nstable`."""
        decay_start: Steps = 600_000
        """The decay starts at update decay_start / replicas. Zero: `lrdecay_start`."""
        decay_end: int = 1_200_000
        """At update decay_end / replicas the rate is lr / 2. Zero: `lrdecay_end`."""

        def __post_init__(self) -> None:
            super().__post_init__()
            require(
                self.decay_end > self.decay_start,
                f"decay_end: must be above decay_start ({self.decay_start}), not {self.decay_end}",
            )

    @classmethod
    def peak(cls, *, lr: float, hidden_size: int, options: Any) -> float:
        """The plateau."""
        return lr * float(options.replicas)

    def _rate_at(self, step: int) -> float:
        options = self.options
        n: int = options.replicas
        # A positive exponent cannot win the minimum; cutting it off keeps the power from overflowing.
        exponent = min(0.0, (options.decay_start - n * step) / (options.decay_end - options.decay_start))
        growth: float = 1.0 + step * (n - 1) / (n * options.warmup_steps)
        decay: float = n * (2.0 * n) ** exponent
        return self.lr * min(growth, float(n), decay)


@SCHEDULES.register("cosine")
class Cosine(Schedule):
    """Linear warm-up, then cosine periods with warm restarts (Loshchilov and Hutter, ICLR 2017).

        lo + (hi - lo) (1 + cos(pi * position / length)) / 2

    in period i = 0, 1, ... of length period * period_factor**i, with lo, hi = min_lr, max_lr times decay**i.
    With `max_lr` given, `training.lr` is where the warm-up starts (as in Zero); without it `training.lr` is
    the peak and the warm-up starts at min_lr.
    """

    @dataclass(frozen=True, kw_only=True)
    class Options:
        min_lr: Amount = 0.0
        """Smallest rate ever used. Zero: `min_lrate`."""
        max_lr: float | None = None
        """Peak, at the end of the warm-up; none for `training.lr`. Zero: `max_lrate`."""
        warmup_steps: Steps = 4000
        """Updates up to the peak; 0 starts there. Zero: `warmup_steps`."""
        period: Count = 5000
        """Updates in the first period. Zero: `cosine_period`."""
        period_factor: Annotated[float, allowed("1 or more", lambda value: 1 <= value < math.inf)] = 1.0
        """Ratio of the length of each period to the one before. Zero: `cosine_factor`."""
        decay: Decay = 1.0
        """Factor applied to both ends of the range after each period. Zero: `lrate_decay`."""

        def __post_init__(self) -> None:
            require(
                self.max_lr is None or self.max_lr >= self.min_lr,
                f"max_lr: must not be below min_lr ({self.min_lr}), is {self.max_lr}",
            )

    @classmethod
    def peak(cls, *, lr: float, hidden_size: int, options: Any) -> float:
        """The beginning of the first period; with `max_lr` given `training.lr` may be above it."""
        return lr if options.max_lr is None else float(options.max_lr)

    def _rate_at(self, step: int) -> float:
        options, peak = self.options, self._ceiling()
        if step < options.warmup_steps:
            start = float(options.min_lr) if options.max_lr is None else self.lr
            return start + (peak - start) * (step / float(options.warmup_steps))
        updates, first, factor = step - options.warmup_steps, float(options.period), float(options.period_factor)
        if factor == 1:
            period, position, length = updates // options.period, float(updates % options.period), first
        else:
            # As Zero computes it: rounding of this logarithm decides on which side of a restart an update falls.
            period = math.floor(math.log(1 - updates / first * (1 - factor), factor))
            position, length = updates - (1 - factor**period) / (1 - factor) * first, factor**period * first
        shrink: float = options.decay**period
        low, high = float(options.min_lr) * shrink, peak * shrink
        return low + 0.5 * (high - low) * (1.0 + math.cos(math.pi * position / length))
