"""What training knows about itself besides weights: progress, clock, the log's interval, ranking, random numbers;
when and why it ends."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch

from nmt import __version__
from nmt.config.schema import Config
from nmt.data.text_facts import ValidationFacts
from nmt.errors import counted
from nmt.interop.model_dir import weights_of
from nmt.ops.hardware import kernels_in_use
from nmt.registry import SEARCHES, TASKS
from nmt.system import cpu_info
from nmt.training.distributed import World

STATE_FORMAT = 2
"""Version of the training state; raised when older ones can no longer be read."""
FALLS = 0.999
"""Of the lowest loss so far, what a loss that still falls is below."""


@dataclass
class Counters:
    """A dataclass of numbers that checkpoints keep by name."""

    def state_dict(self) -> dict[str, Any]:
        """All of them."""
        return dataclasses.asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what was saved; a number missing in an older version starts from its default."""
        for item in dataclasses.fields(self):
            setattr(self, item.name, state.get(item.name, item.default))


@dataclass
class Progress(Counters):
    """Counters of a run. `epoch`, `batch`, `pool` and `skip` are its place in the data, see `Position`."""

    step: int = 0
    epoch: int = 1
    batch: int = 0
    pool: int = 0
    skip: int = 0
    seconds: float = 0.0
    """Time spent on the run up to the last save, over all its processes."""
    cpu_seconds: float = 0.0
    """CPU time spent on the run, over all its processes and commands, when it was last counted."""
    target_tokens: int = 0
    epoch_batches: int = 0
    """Batches of an epoch, an estimate where it has many."""
    skipped: int = 0
    """Updates skipped because of a NaN or infinite value or too large a gradient, in the whole run."""
    validated_step: int = 0
    saved_step: int = 0
    saved_validation: int = 0
    """The validated step that the last checkpoint knows of."""

    def epochs_done(self) -> float:
        """Passes over the data so far, with the part of the current one."""
        return self.epoch - 1 + (min(1.0, self.batch / self.epoch_batches) if self.batch else 0)


@dataclass
class Interval(Counters):
    """Sums since the last line of the training log."""

    updates: int = 0
    nll: float = 0.0
    """Sum of the negative log-likelihoods of all target tokens, in nats."""
    objective: float = 0.0
    """Sum of what updates minimised, each times its target tokens."""
    target_tokens: int = 0
    grad_norm: float = 0.0
    cells: int = 0
    """Positions of the batches' rectangles, source and target, padding counted."""
    tokens: int = 0
    """How many of these positions hold a token."""
    seconds: float = 0.0
    """Time in updates alone, without validation and saving."""
    waited: float = 0.0
    """How much of this time was spent waiting for batches."""
    lr: float | None = None
    """Rate of the last update."""
    too_long: int = 0
    """Sentences that were not split again because they would have become too long."""

    def summary(self) -> dict[str, float | None]:
        """Means for the log; None where nothing was counted.

        `loss` is the cross entropy, in nats for each target token, as validation's; `objective` is what is minimised.
        """
        loss = self.nll / self.target_tokens if self.target_tokens else None
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "objective": self.objective / self.target_tokens if self.target_tokens else None,
            "grad_norm": self.grad_norm / self.updates if self.updates else None,
            "lr": self.lr,
            "target_tokens_per_second": self.target_tokens / self.seconds if self.seconds > 0 else None,
            "padding": 1 - self.tokens / self.cells if self.cells else None,
            "data_wait": self.waited / self.seconds if self.seconds > 0 else None,
        }

    def clear(self) -> None:
        """Reset the counts."""
        self.load_state_dict({})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore saved sums; none of an older version, which summed another loss."""
        super().load_state_dict(state if "nll" in state else {})


@dataclass
class Ranking:
    """Validation scores of checkpoints, and how long ago the last new best was.

    Patience counts regular validations only: an extra validation at a time limit must not change the course of
    training, or an interrupted run would differ from an uninterrupted one.
    """

    metric: str
    higher_is_better: bool
    scores: dict[int, float] = field(default_factory=dict)
    """Score by step, of validations whose checkpoint may be kept."""
    regular_best: float | None = None
    without_best: int = 0
    lowest_loss: float | None = None
    """Of the regular validations."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the metric that differ from the defaults."""
    conditions: dict[str, Any] = field(default_factory=dict)
    """What else scores depend on besides the weights; see `nmt.training.state`."""

    def better(self, score: float, than: float | None) -> bool:
        """Whether `score` is strictly better; anything finite is better than nothing."""
        if math.isnan(score):
            return False
        if than is None or math.isnan(than):
            return True
        return score > than if self.higher_is_better else score < than

    def learns(self, loss: float) -> bool:
        """Whether the loss of a validation is lower than that of any before, by a thousandth: less is rounding."""
        return not math.isnan(loss) and (self.lowest_loss is None or loss < FALLS * self.lowest_loss)

    def means_nothing(self, score: float, *, loss: float, by_chance: bool) -> bool:
        """Whether nothing follows from the score of a validation: a metric at chance while the loss still falls, a loss
        that could not be measured so far."""
        if self.metric == "loss":
            return math.isnan(score) and self.regular_best is None
        return by_chance and self.learns(loss)

    def add(self, step: int, score: float, *, regular: bool, loss: float = math.nan, by_chance: bool = False) -> bool:
        """Enter a validation; return whether it is the best so far.

        With a score that means nothing patience begins anew: later ones are compared with it, and not with one before
        that was luckier.
        """
        new_best = self.better(score, self.best)
        self.scores[step] = score
        if regular:
            if self.means_nothing(score, loss=loss, by_chance=by_chance) or self.better(score, self.regular_best):
                self.regular_best, self.without_best = None if math.isnan(score) else score, 0
            else:
                self.without_best += 1
            if self.learns(loss):
                self.lowest_loss = loss
        return new_best

    @property
    def best(self) -> float | None:
        """The best score so far."""
        ranked = self.ranked()
        return self.scores[ranked[0]] if ranked else None

    def ranked(self) -> list[int]:
        """Steps, best first; the earlier of two equal ones first. NaN is left out."""
        finite = [step for step, score in self.scores.items() if not math.isnan(score)]
        sign = -1 if self.higher_is_better else 1
        return sorted(finite, key=lambda step: (sign * self.scores[step], step))

    def state_dict(self) -> dict[str, Any]:
        """Scores and counters by name."""
        return dataclasses.asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> str | None:
        """Restore saved scores; if the conditions of measurement have changed, drop them and return why."""
        if state["metric"] != self.metric:
            return f"training.early_stopping_metric: {state['metric']!r} -> {self.metric!r}"
        if state.get("options", {}) != self.options:
            return f"options of {self.metric}: {state.get('options', {})!r} -> {self.options!r}"
        if reasons := "; ".join(differences(state.get("conditions", {}), self.conditions)):
            return reasons
        self.scores = dict(state["scores"])
        self.regular_best, self.without_best = state["regular_best"], state["without_best"]
        self.lowest_loss = state.get("lowest_loss")
        return None


def perplexity(loss: float | None) -> float | None:
    """exp(loss) with loss in nats per token; infinite where that overflows, NaN of NaN."""
    if loss is None:
        return None
    return math.inf if loss >= 700 else math.exp(loss)


_SAME_TRANSLATIONS = ("n_best", "batch_tokens")
"""Keys of `decoding` that change no translation that is scored, except `n_best` with a search of `best_of_n`."""
_CONTENT = "sha256:"
"""Prefix of values that represent the content of a file or text."""


def conditions(config: Config, facts: ValidationFacts | None) -> dict[str, Any]:
    """By name, everything that determines the score of given weights by `training.early_stopping_metric`.

    Without `facts`, the validation text is left out. Values are numbers, text, None, or lists and mappings of these.
    """
    metric, task = config.training.early_stopping_metric.partition("@")[0], TASKS.known(config.task)
    if metric == "loss" or (task is not None and metric in task.scores):  # measured without a search
        return {} if facts is None else {"data.dev": f"{_CONTENT}{facts.source}{facts.target}"}
    decoding, without = config.decoding, {*_SAME_TRANSLATIONS}
    search = SEARCHES.known(decoding.chosen_search)
    if search is not None and search.best_of_n:
        without.remove("n_best")
    names = [field.name for field in dataclasses.fields(decoding) if field.name not in without]
    found = {f"decoding.{name}": getattr(decoding, name) for name in names}
    found["decoding.search"] = decoding.chosen_search
    for key in ("shortlist", "glossary"):
        if getattr(decoding, key) is not None:
            found[f"decoding.{key}"] = _content(Path(getattr(decoding, key)))
    if decoding.language_model is not None:
        found["decoding.language_model"] = _content(weights_of(decoding.language_model))
    if facts is not None:
        limit = config.evaluation.max_sentences
        found |= {
            "data.dev": f"{_CONTENT}{facts.source}",
            "references of data.dev": f"{_CONTENT}{facts.references}",
            "evaluation.max_sentences": limit if limit is None or limit < facts.lines else None,
        }
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Each condition that has changed, in words; conditions missing on one side (older versions) are left out."""
    for name in new:
        if name in old and old[name] != new[name]:
            is_content = str(old[name]).startswith(_CONTENT) and str(new[name]).startswith(_CONTENT)
            yield f"{name} has different contents" if is_content else f"{name}: {old[name]!r} -> {new[name]!r}"


def _content(path: Path) -> str:
    try:
        return f"{_CONTENT}{hashlib.sha256(path.read_bytes()).hexdigest()}"
    except OSError:  # reported where it is used to translate
        return str(path)


def random_state() -> dict[str, Any]:
    """States of all generators that training may draw from, as tensors and plain values."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    words = np.asarray(keys).astype(np.int64)  # torch cannot save all of uint32
    return {
        "python": random.getstate(),
        "numpy": (str(kind), torch.from_numpy(words), int(position), int(has_gauss), float(gauss)),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Restore what `random_state` returned; GPU states only as far as there are GPUs."""
    random.setstate(state["python"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        for device, generator in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(generator, device)


def seed_everything(seed: int) -> None:
    """Seed every generator; initialisation and dropout draw from torch's."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def environment(world: World) -> dict[str, str]:
    """Names and values, as people read them, of all that sums are rounded by: what the last bits of a training depend
    on besides its configuration, its data and its place in them."""
    device = world.device
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        computer = f"{name}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
    else:  # Intel's library chooses its code by the instructions that PyTorch uses
        capability = torch.backends.cpu.get_cpu_capability()
        computer = f"CPU {cpu_info('model name')} with {capability}".replace("  ", " ")
    return {
        "device": computer,
        "processes": str(world.size),
        "threads": str(torch.get_num_threads()),
        "kernels": kernels_in_use(device),
        "MKL_CBWR": os.environ.get("MKL_CBWR", "not set"),
        "PyTorch": str(torch.__version__),
        "nmt": __version__,
    }


def environment_changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """One line that names what differs, none where nothing does, or where it is not known what was before."""
    changed = [f"{name} {before[name]} -> {value}" for name, value in now.items() if before.get(name, value) != value]
    why = f"because this has changed: {', '.join(changed)}"
    return [f"from here on equal up to rounding, not bit for bit, {why}"] if changed else []


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
        deadline = None if wall is None else started + 60 * wall
        return cls(deadline=deadline, cpu_seconds=None if cpu is None else 60 * cpu)


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

    signal_number: int | None = None

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
        with suppress(ValueError):  # only the main thread may; an embedding program handles signals itself
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                    previous[number] = signal.signal(number, self._handle)
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

    def __init__(self, progress: Progress) -> None:
        """`progress`: of the run before now."""
        self._step, self._cpu_seconds = progress.step, progress.cpu_seconds
        self._started = time.monotonic()

    def outlook(self, progress: Progress, limits: Limits, *, updates_per_epoch: Callable[[], int]) -> Outlook:
        """When the first of these limits will be reached, with updates and CPU seconds as fast as they were so far.

        The time is unknown without such a limit, or while too little has been done to tell.
        """
        now = time.monotonic()
        passed, done, used = now - self._started, progress.step - self._step, progress.cpu_seconds - self._cpu_seconds
        epochs, budget = limits.max_epochs, limits.budget
        ends = (limits.max_steps, None if epochs is None else epochs * updates_per_epoch())
        last = min((step for step in ends if step is not None), default=None)
        by_update = None if last is None or done <= 0 else max(0, last - progress.step) * passed / done
        times = [] if budget.deadline is None else [budget.deadline - now]
        if budget.cpu_seconds is not None and used > 0:
            times.append((budget.cpu_seconds - progress.cpu_seconds) * passed / used)
        by_limit = max(0.0, min(times)) if times else None
        if by_limit is not None and (by_update is None or by_limit < by_update):
            return Outlook(by_limit, passed / (passed + by_limit) if passed else 0.0, None)
        return Outlook(by_update, None if last is None else min(1.0, progress.step / last), last)


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
