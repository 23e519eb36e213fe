"""The training loop: update, log, validate, save, end."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from nmt.errors import ConfigError, counted
from nmt.registry import DOUBTS
from nmt.system import CpuClock, frozen_objects
from nmt.training.batches import Group, Position, Prefetching
from nmt.training.callbacks import Callbacks, UpdateResult, ValidationResult
from nmt.training.distributed import World, check_same
from nmt.training.logs import SAMPLE_HANG, ProgressBar, RunLog, memory_mb
from nmt.training.run_dir import CheckpointStore, Loaded, kept_translations, write_lines
from nmt.training.state import (
    Ending,
    InterruptedValidationError,
    Interval,
    Limits,
    Outlook,
    Progress,
    Ranking,
    StopRequest,
    TimeLeft,
    duration,
    environment,
    environment_changes,
    perplexity,
    random_state,
    set_random_state,
)
from nmt.training.task import Validates
from nmt.training.update import StartingGradient, Update, Updater
from nmt.training.validation import Validation


@dataclass(kw_only=True)
class Trainer:
    """A run: its parts, and what it knows about itself.

    Several processes that train together each have one and do the same; the log and the checkpoints of all but
    rank 0 write nothing.
    """

    updater: Updater
    batches: Prefetching
    validator: Validates | None
    checkpoints: CheckpointStore
    log: RunLog
    limits: Limits
    log_every: int
    """Updates between two log lines, as the next two between validations and checkpoints."""
    validate_every: int | None = None
    """None: at the end of each epoch."""
    save_every: int | None = None
    """None: with each validation."""
    ranking: Ranking
    data_key: str
    """Digest of the encoded training text, by which a resumed run detects changes."""
    keeps_translations: bool = False
    """Whether the translations of validations are kept in the run."""
    samples: Any = None
    """Translates some training text between validations, if that is asked for."""
    callbacks: Callbacks = field(default_factory=Callbacks)
    """The user's callbacks; `on_start` and `on_end` are called by the creator of the trainer."""
    stop: StopRequest = field(default_factory=StopRequest)
    cpu: CpuClock = field(default_factory=CpuClock)
    """The CPU time of this process that counts for the run, read by `count_cpu`."""
    progress: Progress = field(default_factory=Progress)
    interval: Interval = field(default_factory=Interval)

    @property
    def world(self) -> World:
        """The processes that train together."""
        return self.updater.world

    def __post_init__(self) -> None:
        self._mark = time.monotonic()
        self._earlier_cpu = self.progress.cpu_seconds
        self._time_left = TimeLeft(self.progress)
        self._bar = ProgressBar(hidden=True)
        self._starting = StartingGradient()

    def train(self) -> Ending:
        """Train until a limit is reached or a signal asks to stop; the last weights are saved."""
        progress = self.progress
        position = Position(progress.epoch, progress.batch, progress.pool, progress.skip)
        self._bar = ProgressBar(hidden=not self.world.is_main)
        self._mark = time.monotonic()
        self.count_cpu()
        self._time_left = TimeLeft(self.progress)
        listening, frozen = self.stop.listening(), frozen_objects()
        with closing(self._bar), listening, frozen, self.batches.prefetched(position) as groups:
            # First what was still to do when the checkpoint was written, if this is a resumed run.
            ending = self.finish_step()
            while ending is None:
                self.train_step(groups)
                if self._bar.is_due():
                    self._bar.show(progress.step, self.interval, self.outlook())
                ending = self.finish_step()
        self.count_cpu()
        self.record("end", {"reason": ending.reason, "finished": ending.finished})
        return ending

    def train_step(self, groups: Iterator[Group]) -> None:
        """Do one update with the next batches, and count it."""
        started = time.perf_counter()
        group = next(groups)
        self.interval.waited += time.perf_counter() - started
        is_first = self.progress.step == 0 and self.progress.skipped == 0
        if self.updater.schedule.needs_end:
            self.updater.schedule.use_share(self.limits.share(self.progress))
        update = self.updater.update(group, step=self.progress.step)
        self._count(group, update)
        self.interval.seconds += time.perf_counter() - started
        if is_first and self.world.is_main and group.batches:
            batch = group.batches[0]
            health = DOUBTS.get("health")(self.updater.model, batch.source, batch.target, grad_norm=update.grad_norm)
            self.record("health", dataclasses.asdict(health))
            self.log.say("\n".join([health.summary(), *health.problems()]))
        if not update.applied:
            reason = ", above training.skip_norm" if self.updater.guard.too_large(update.grad_norm) else ""
            self.log.say(f"update skipped: objective {update.objective}, gradient norm {update.grad_norm}{reason}")
        elif doubt := self._starting.see(update.grad_norm, step=self.progress.step):
            self.warn(doubt)
        samples = self.samples if update.applied and self.world.is_main else None
        if samples is not None and self.progress.step % samples.every == 0:
            self.show_samples(samples, group)
        result = UpdateResult(
            step=self.progress.step,
            epoch=self.progress.epochs_done(),
            loss=update.nll / group.target_tokens,
            objective=update.objective,
            grad_norm=update.grad_norm,
            lr=update.lr,
            target_tokens=group.target_tokens,
            applied=update.applied,
        )
        self.callbacks.call("on_update", lambda member: member.on_update(result))

    def show_samples(self, samples: Any, group: Group) -> None:
        """Report what the inference weights make of text of this update."""
        with self.updater.inference_weights() as model:
            taken = samples.take(model, group.last_rows)
        self.record("samples", {"samples": taken})
        self.log.say(f"training text after update {self.progress.step}")
        self.log.say("\n".join(_sample_lines(taken)), hang=SAMPLE_HANG)

    def finish_step(self) -> Ending | None:
        """Log, validate and save if due after an update; return why training ends, if it does.

        Validation is due every so many updates, by default at the end of each epoch. So is a checkpoint, by default
        with each validation, and always with a new best if best ones are kept.
        """
        ending, progress = self.ending(), self.progress
        log_is_due = self.interval.updates > 0 and progress.step % self.log_every == 0
        if log_is_due or (ending is not None and ending.finished and ending.logs_rest):
            self.log_training()
        at_epoch_end, new_best = progress.epoch > 1 and progress.batch == 0, False
        due = at_epoch_end if self.validate_every is None else progress.step % self.validate_every == 0
        unvalidated = self.validator is not None and progress.validated_step != progress.step
        regular = unvalidated and due
        if regular or (ending is not None and ending.validates and unvalidated):
            try:
                new_best = self.validate(regular=regular)
            except InterruptedValidationError:
                self.log.say("validation interrupted; it will be done when training resumes")
            ending = self.ending()
        if self.save_every is None:
            due = regular if self.validator is not None else at_epoch_end
        else:
            due = progress.step > 0 and progress.step % self.save_every == 0
        if ending is not None or due or (new_best and self.checkpoints.keep_best):
            self.save()
        return ending

    def validate(self, *, regular: bool = True) -> bool:
        """Validate the inference weights; return whether they are the best so far."""
        assert self.validator is not None
        with self.updater.inference_weights() as model:
            lines = self._bar.task(f"validating update {self.progress.step:,}", self.validator.lines, unit="lines")
            result = self.validator.validate(model, check=self._check_stop, translated=lines)
        score = result.scores[self.ranking.metric]
        by_chance = result.chance is not None and not result.chance.is_beaten
        loss = result.scores["loss"]
        too_early = self.ranking.means_nothing(score, loss=loss, by_chance=by_chance)
        new_best = self.ranking.add(self.progress.step, score, regular=regular, loss=loss, by_chance=by_chance)
        for part in self.updater.following if regular and not too_early else ():
            part.end_validation(score, higher_is_better=self.ranking.higher_is_better)
        self.progress.validated_step = self.progress.step
        self._report(result, new_best=new_best)
        measured = ValidationResult(self.progress.step, result.scores, new_best, result.samples)
        self.callbacks.call("on_validation", lambda member: member.on_validation(measured))
        return new_best

    def save(self) -> None:
        """Write a checkpoint of this step, unless it has just been written.

        Raises RankError where the processes that train together have different weights.
        """
        step = self.progress.step
        if self.progress.saved_step == step and self.progress.saved_validation == self.progress.validated_step:
            return
        self.progress.saved_step, self.progress.saved_validation = step, self.progress.validated_step
        self.count_seconds()
        self.count_cpu()
        with self.updater.inference_weights() as model:
            weights = dict(model.state_dict())
        check_same(self.world, "weights", self.updater.fingerprint)
        path = self.checkpoints.save(step, weights=weights, state=self.state_dict(), ranking=self.ranking)
        self.record("checkpoint", {"path": path.name})
        self.log.say(f"saved {path}")
        self.callbacks.call("on_checkpoint", lambda member: member.on_checkpoint(path))

    def state_dict(self) -> dict[str, Any]:
        """Everything besides the inference weights that an undisturbed continuation depends on."""
        return {
            "updater": self.updater.state_dict(),
            "progress": self.progress.state_dict(),
            "interval": self.interval.state_dict(),
            "ranking": self.ranking.state_dict(),
            "random": random_state(),
            "data_key": self.data_key,
            "dev_key": None if self.validator is None else self.validator.key,
            "callbacks": self.callbacks.state_dict(),
            "environment": environment(self.world),
        }

    def load(self, loaded: Loaded) -> list[str]:
        """Continue from a checkpoint; return lines for people about what is reset or computed differently.

        Raises ConfigError where the training text has changed since then.
        """
        if loaded.state["data_key"] != self.data_key:
            message = "the training text has changed since then, or the saved tokenizer; restore it or start a new run"
            raise ConfigError(f"{loaded.path}: {message}")
        notes = self.updater.load(loaded.weights, loaded.state["updater"])
        self.progress.load_state_dict(loaded.state["progress"])
        self._earlier_cpu = self.progress.cpu_seconds
        if "cpu_seconds" not in loaded.state["progress"]:
            notes.append("CPU seconds count from here on: the version that started this run did not count them")
        self.interval.load_state_dict(loaded.state["interval"])
        if reason := self.ranking.load_state_dict(loaded.state["ranking"]):
            for part in self.updater.following:
                part.forget_scores()
            why = f"because new scores cannot be compared with old ones: {reason}"
            notes.append(f"a new ranking of checkpoints begins, {why}")
        set_random_state(loaded.state["random"])
        notes += self.callbacks.load_state_dict(loaded.state.get("callbacks", {}))
        return [*notes, *environment_changes(loaded.state.get("environment", {}), environment(self.world))]

    def ending(self) -> Ending | None:
        """Why training must end now, in all processes, None to continue; a signal to any process comes first."""
        signal_number, late, asked = self.world.largest(
            self.stop.signal_number or 0, self.limits.time_is_up(), self.callbacks.stopped is not None
        )
        if self.limits.budget.cpu_seconds is not None:
            self.count_cpu()
        if signal_number:
            name = "Ctrl-C" if signal_number == signal.SIGINT else signal.Signals(int(signal_number)).name
            code = 128 + int(signal_number)
            return Ending(f"stopped by {name}", finished=False, exit_code=code, validates=False)
        if asked:
            return Ending(self.callbacks.stop_reason, finished=True)
        return self.limits.reached(self.progress, self.ranking, late=bool(late))

    def log_training(self) -> None:
        """Report the updates since the last line, and reset the counts."""
        if not self.interval.updates:
            return
        self.interval.waited, memory = self.world.largest(self.interval.waited, memory_mb())
        self.count_cpu()
        summary = self.interval.summary()
        left = self.outlook().seconds
        extra = {"eta_seconds": left, "memory_mb": memory, "skipped": self.progress.skipped}
        too_long = self.interval.too_long
        self.record("train", {**summary, **extra, **({"too_long": too_long} if too_long else {})})
        ends = "" if left is None else f"  {duration(left)} left"
        loss, objective = f"{summary['loss']:.4f}", f"{summary['objective']:.4f}"
        minimised = "" if objective == loss else f"  objective {objective}"
        self.log.say(
            f"update {self.progress.step}  epoch {self.progress.epochs_done():.2f}  loss {loss}  "
            f"ppl {summary['perplexity']:.2f}{minimised}  norm {summary['grad_norm']:.2f}  lr {summary['lr']:.2e}  "
            f"{summary['target_tokens_per_second']:,.0f} target tokens/s  padding {summary['padding']:.1%}  "
            f"data wait {summary['data_wait']:.1%}  {memory:,.0f} MB  CPU {self.progress.cpu_seconds:,.0f} s{ends}",
            figures=True,
        )
        if too_long:
            self.log.say(f"  {counted(too_long, 'sentence')} kept the usual subwords because of data.max_length")
        self.interval.clear()

    def warn(self, text: str) -> None:
        """Say and log what may make this training useless."""
        self.log.say(f"warning: {text}")
        self.record("warning", {"text": text})

    def record(self, event: str, fields: dict[str, Any]) -> None:
        """One line of log.jsonl with where the run stands."""
        now = {
            "step": self.progress.step,
            "epoch": round(self.progress.epochs_done(), 4),
            "seconds": round(self.count_seconds(), 3),
            "cpu_seconds": round(self.progress.cpu_seconds, 3),
        }
        self.log.record(event, {**now, **fields})

    def count_seconds(self) -> float:
        """Bring the run's clock, which continues over resumes, up to now and return it."""
        now = time.monotonic()
        self.progress.seconds += now - self._mark
        self._mark = now
        return self.progress.seconds

    def count_cpu(self) -> None:
        """Update the CPU time of the run; all its processes must call this together."""
        self.progress.cpu_seconds = self._earlier_cpu + self.world.total(self.cpu.seconds())

    def outlook(self) -> Outlook:
        """How far training has come, and when it will end."""
        per_epoch = self.batches.updates_per_epoch
        return self._time_left.outlook(self.progress, self.limits, updates_per_epoch=per_epoch)

    def _check_stop(self) -> None:
        """Break a validation off when a signal has arrived here or at another process."""
        if self.stop.signal_number is not None:
            self.world.ask_to_stop()
            raise InterruptedValidationError
        if self.world.stop_is_asked():
            raise InterruptedValidationError

    def _count(self, group: Group, update: Update) -> None:
        progress, interval = self.progress, self.interval
        if group.after.epoch > progress.epoch:
            self.updater.schedule.end_epoch(progress.epoch)
        progress.epoch, progress.batch, progress.pool, progress.skip = group.after
        progress.epoch_batches = group.epoch_batches
        progress.skipped += not update.applied
        interval.cells += group.cells
        interval.tokens += group.tokens
        interval.lr = update.lr
        interval.too_long += group.too_long
        if update.applied:
            progress.step += 1
            progress.target_tokens += group.target_tokens
            interval.updates += 1
            interval.nll += update.nll
            interval.objective += update.objective * group.target_tokens
            interval.grad_norm += update.grad_norm
            interval.target_tokens += group.target_tokens

    def _report(self, result: Validation, *, new_best: bool) -> None:
        scores = {**result.scores, "perplexity": perplexity(result.scores["loss"])}
        details: dict[str, Any] = {"signatures": result.signatures, "samples": result.samples}
        self.count_cpu()
        kept = None
        if self.keeps_translations and self.world.is_main:
            kept = kept_translations(self.checkpoints.run, self.progress.step)
            write_lines(kept, result.translations)
            details |= {"translations": kept.name, "translated": len(result.translations)}
        details |= result.faults.counts
        if result.chance is not None:
            details |= {"chance": {result.chance.metric: result.chance.score}, "beats_chance": result.chance.is_beaten}
        self.record("validation", {**scores, "new_best": new_best, "validation_seconds": result.seconds, **details})
        listed = [f"{name} {value:.{4 if name.startswith('loss') else 2}f}" for name, value in scores.items()]
        so_far = "none" if self.ranking.best is None else f"{self.ranking.best:.4f}"  # none where all are NaN
        best = "new best" if new_best else f"best {self.ranking.metric} so far {so_far}"
        line = f"validation of update {self.progress.step}  {'  '.join(listed)}  {best}"
        self.log.say(f"{line}  ({result.seconds:.1f} s, CPU {self.progress.cpu_seconds:,.0f} s so far)")
        if kept is not None:
            self.log.say(f"  {counted(len(result.translations), 'translation')} in {kept}")
        for problem in result.faults.problems:
            self.log.say(f"  {problem}")
        if doubt := DOUBTS.get("equal_translations")(result.translations):
            self.warn(doubt)
        signatures = [f"  {signature}" for signature in result.signatures.values()]
        self.log.say_details([*signatures, *_sample_lines(result.samples)])


def _sample_lines(samples: Sequence[Mapping[str, str]]) -> list[str]:
    """Some translations with what belongs to them."""
    return [f"  {name:<11} {text}" for sample in samples for name, text in sample.items()]
