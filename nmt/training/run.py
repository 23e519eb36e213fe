"""A whole training run in its directory: begin or resume, build the parts, train, report, average and test."""

from __future__ import annotations

import dataclasses
import os
import shutil
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

from nmt.config import component_options, dump, load_saved, write_config
from nmt.config.located import anchored
from nmt.config.options import choices
from nmt.config.schema import Config
from nmt.data import Tokenizer
from nmt.data.saved_tokenizer import has_checksums, write_checksums
from nmt.data.text_facts import ValidationFacts
from nmt.errors import CheckpointError, ConfigError, DataError, NmtError, counted
from nmt.files import is_file, is_there, new_directory, reason
from nmt.interop import run_layout
from nmt.interop.weights_file import DamagedError, read_metadata, read_weights
from nmt.kernel_check import choose_kernels, use_verified_kernels
from nmt.models import freeze, parameters_by_part
from nmt.ops.hardware import kernels_in_use
from nmt.registry import DOUBTS, METRICS, OPTIMIZERS, SCHEDULES, STARTS
from nmt.system import CpuClock, available_cores, cpu_info
from nmt.training.callbacks import Callbacks, End, Start, stop_of
from nmt.training.distributed import World, check_same
from nmt.training.logs import EVENTS, RunLog, read_events, warnings_in
from nmt.training.run_dir import (
    LOCK,
    NEW,
    Change,
    CheckpointStore,
    Loaded,
    OtherVersionError,
    average_checkpoints,
    check_resumable,
    locked,
    read_checkpoint,
    rewind_translations,
)
from nmt.training.state import Budget, Ending, Limits, Progress, Ranking, conditions
from nmt.training.task import Prepared, Task, check_files, task_of
from nmt.training.trainer import Trainer
from nmt.training.update import EMA, BadUpdateGuard, Objective, PlateauAverage, Updater, choose_precision

SHARED = "run_dir and data.cache_dir must be in a file system that all machines share"


def run_training(
    config: Config, *, world: World, limits: Limits, cpu: CpuClock | None = None, overwrite: bool = False
) -> Ending:
    """Train in `config.run_dir`, or resume the run there; return why training has ended.

    `cpu`: the CPU time that counts for the run; by default the time used from here on. With `overwrite`, an existing
    run is moved aside first. Of the processes in `world`, only rank 0 writes and holds the lock.

    Raises:
        ConfigError: the existing run has another model or order of data, or `kernels` is not possible here.
        DataError: texts cannot be used.
        CheckpointError: the directory cannot be used or written, or another process trains in it.
        RankError: the processes differ in configuration or data, or see different files.
    """
    run, task = Path(config.run_dir), task_of(config)
    cpu = CpuClock() if cpu is None else cpu
    choose_kernels(config.kernels, device=world.device)
    check_same(world, "configuration", lambda: dump(config))
    log = RunLog(run, tensorboard=config.training.tensorboard and world.is_main, writes=world.is_main)
    checkpoints = CheckpointStore(
        run,
        keep_last=config.training.keep_last,
        keep_best=config.training.keep_best,
        config_text=dump(anchored(config)),
        writes=world.is_main,
    )
    moved = None
    if world.from_main(overwrite):
        with world.main_first():
            moved = replace_run(task, device=world.device) if world.is_main else None
    try:
        with locked(run) if world.is_main else nullcontext():
            if moved is not None:
                log.say(f"the run that was here is now {moved}")
            changes = _accepted_changes(config, run) if world.is_main else []
            loaded = _newest_checkpoint(checkpoints, world, log=log)
            finished = _finished(task, loaded, limits) if loaded is not None and world.is_main else None
            finished = world.from_main(finished)
            if finished is not None:
                log.say(f"{run}: nothing to do, this run is finished: {finished}")
                return Ending(finished, finished=True)
            if config.training.average_last and world.is_main:
                check_average(run)
            start = STARTS.get("model")(config) if config.training.init_from and loaded is None else None
            data = _prepare(task, world)
            trainer = build_trainer(task, data, checkpoints, world=world, log=log, limits=limits, cpu=cpu, start=start)
            if start is not None:
                log.say(start.said)
            with warnings_in(log):
                use_verified_kernels([trainer.updater.model], device=world.device, purpose="training")
                _begin(task, trainer, data, loaded=loaded, changes=changes, start=start)
                begun = Start(run, config, trainer.updater.model, trainer.progress.step, world.rank)
                trainer.callbacks.call("on_start", lambda member: member.on_start(begun))
                ending = trainer.train()
                _end(task, trainer, data, ending)
                return ending
    except torch.OutOfMemoryError as error:
        advice = "lower training.batch_tokens or batch_sentences, and raise training.accumulate for it"
        raise NmtError(f"out of GPU memory; {advice}") from error
    finally:
        log.close()


def _accepted_changes(config: Config, run: Path) -> list[Change]:
    """The differences from the existing run; empty if there is none or it has no checkpoint yet."""
    saved = run / run_layout.CONFIG
    if not is_file(saved) or not run_layout.checkpoint_steps(run):
        return []
    try:
        return check_resumable(load_saved(saved, config.plugins), config, run=run)
    except ConfigError as error:
        # The difference may be another version's defaults; then no values would let the run resume.
        try:
            read_checkpoint(run_layout.step_dir(run, run_layout.checkpoint_steps(run)[-1]))
        except OtherVersionError as other:
            raise other from None
        except DamagedError:
            pass
        raise error from None


def _newest_checkpoint(checkpoints: CheckpointStore, world: World, *, log: RunLog) -> Loaded | None:
    """The newest checkpoint that rank 0 finds whole, read by each process from the directory they share."""
    run = checkpoints.run
    loaded = checkpoints.load_newest(warn=log.say) if world.is_main else None
    name = world.from_main(None if loaded is None else loaded.path.name)
    if not world.is_main and not (run / LOCK).is_file():
        raise DataError(f"{run}: rank 0 has a run there, but it is not visible to this process; {SHARED}")
    return loaded if world.is_main or name is None else read_checkpoint(run_layout.checkpoints_dir(run) / name)


def _prepare(task: Task, world: World) -> Prepared:
    """The data, prepared by rank 0; the other processes open its files."""
    run = Path(task.config.run_dir)
    with world.main_first():
        mine: Prepared | None = task.prepare(run) if world.is_main else None
    for folder in world.from_main([] if mine is None else [str(folder) for folder in mine.folders]):
        if not Path(folder).is_dir():
            raise DataError(f"{folder}: rank 0 has made it, but it is not visible to this process; {SHARED}")
    data: Prepared = task.prepare(run, progress=False) if mine is None else mine
    check_same(world, "training text", lambda: data.key)
    return data


def _finished(task: Task, loaded: Loaded, limits: Limits) -> str | None:
    """The goal that a saved run has already reached, found without reading the data."""
    facts = None
    if limits.patience is not None:  # of patience alone the ranking decides
        with suppress(NmtError):  # a finished run does not need the data any more
            facts = task.read_validation_facts()
    progress, ranking = Progress(), build_ranking(task, facts)
    progress.load_state_dict(loaded.state["progress"])
    ranking.load_state_dict(loaded.state["ranking"])
    # The end that a callback has asked for, unless that callback has gone or has other options now.
    chosen = {choice.name: dict(choice.options) for choice in choices(task.config.training.callbacks)}
    asked = stop_of(loaded.state.get("callbacks", {}), chosen)
    ending = Ending(asked, finished=True) if asked is not None else limits.reached(progress, ranking)
    if ending is None or not ending.finished or (task.validates and progress.validated_step != progress.step):
        return None
    # The results of the end must be there and belong to this step, not to an earlier end: it may have been interrupted
    # while the test text was being translated, or asked for only now.
    run, averages = Path(task.config.run_dir), task.config.training.average_last
    events = [event for event in read_events(run) if event["step"] == progress.step] if is_file(run / EVENTS) else []
    averaged = any(event["event"] == AVERAGE and event["average_last"] == averages for event in events)
    scored = sum(event["event"] == "test" for event in events)
    if (averages and not averaged) or (task.tests and scored < (2 if averages else 1)):
        return None
    files = [run / AVERAGE / run_layout.WEIGHTS] if averages else []
    files += test_outputs(task) if task.tests else []
    return ending.reason if all(is_file(file) for file in files) else None


def _begin(
    task: Task,
    trainer: Trainer,
    data: Prepared,
    *,
    loaded: Loaded | None,
    changes: list[Change],
    start: Any = None,
) -> None:
    """Take over the checkpoint, save configuration and facts and say what will be done."""
    run, log, updater, world = trainer.checkpoints.run, trainer.log, trainer.updater, trainer.world
    notes = trainer.load(loaded) if loaded is not None else []
    trainer.checkpoints.write_ranking(trainer.ranking)
    step, validated = trainer.progress.step, trainer.progress.validated_step == trainer.progress.step
    undone, again = log.rewind(step, validated=validated), 0
    if world.is_main:
        again = rewind_translations(run, step, validated=validated)
        write_config(run / run_layout.CONFIG, anchored(task.config))
        if not has_checksums(run / run_layout.TOKENIZER):  # made by an older version
            write_checksums(run / run_layout.TOKENIZER)
        task.keep_facts(data, run, before=getattr(start, "directory", None if loaded is None else run))
    parameters, device = sum(weight.numel() for weight in updater.model.parameters()), updater.precision.device
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = f"{device.type}, {counted(torch.get_num_threads(), 'thread')} for {counted(available_cores(), 'core')}"
    log.say(f"run {run} on {name}; {updater.precision}")
    if world.size > 1:
        log.say(str(world))
    log.say(f"model {task.describe_model(updater.model)}, {parameters:,} parameters")
    log.say(f"  {task.describe_vocabularies(updater.model)}")
    frozen = task.config.training.freeze
    parts = parameters_by_part(updater.model).items()
    log.say("  " + ", ".join(f"{part} {count:,}{' (frozen)' * (part in frozen)}" for part, count in parts))
    for line in task.data_lines(data, trainer.batches):
        log.say(line)
    limits = trainer.limits.described(used_cpu_seconds=trainer.progress.cpu_seconds)
    log.say(f"{limits}; {task.describe_epoch(trainer.batches)}")
    for doubt in task.doubts(data, trainer.batches):
        trainer.warn(doubt)
    for change in changes:
        log.say(f"changed since the last start: {change}")
    if loaded is not None:
        lost = f"; {counted(undone, 'log line')} of later updates removed" if undone else ""
        lost += f"; {counted(again, 'file')} of translations, too" if again else ""
        log.say(f"resuming {loaded.path} at epoch {trainer.progress.epochs_done():.2f}{lost}")
    for note in notes:
        log.say(note)
    if loaded is not None and world.is_main:
        events = read_events(run) if is_file(run / EVENTS) else []
        saved = [event["path"] for event in events if event["event"] == "checkpoint"]
        if loaded.path.name not in saved:  # the process was killed between saving it and saying so
            trainer.record("checkpoint", {"path": loaded.path.name})
    trainer.count_cpu()
    trainer.record(
        "start",
        {
            "resumed": loaded is not None,
            "parameters": parameters,
            "updates_per_epoch": trainer.batches.updates_per_epoch(),
            **data.counts,
            "device": str(device),
            "cpu": cpu_info("model name"),
            "precision": updater.precision.name,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "kernels": kernels_in_use(device),
            "processes": world.size,
        },
    )


def _end(task: Task, trainer: Trainer, data: Prepared, ending: Ending) -> None:
    """Say how training ended and, unless a signal asked to stop, average and score the test text."""
    run, log, progress = trainer.checkpoints.run, trainer.log, trainer.progress
    best = trainer.ranking.ranked()
    where = f"{trainer.ranking.metric} was best at update {best[0]}: {trainer.ranking.best:.4f}" if best else ""
    log.say(f"{ending.reason} at update {progress.step}, epoch {progress.epochs_done():.2f}. {where}".rstrip())
    if trainer.world.is_main and ending.exit_code == 0 and is_file(run / EVENTS):
        validations = [event for event in read_events(run) if event["event"] == "validation"]
        if doubt := DOUBTS.get("never_learned")(validations):
            trainer.warn(doubt)
    if not ending.finished:
        log.say("the same command resumes this run")
    # A short time limit can be over before the first update.
    saved = trainer.world.from_main(run_layout.last_step(run)) is not None
    if ending.exit_code == 0 and saved:
        finish(task, trainer, data)
        log.say(task.hint(run))
    ended = End(progress.step, ending.reason, ending.finished)
    trainer.callbacks.call("on_end", lambda member: member.on_end(ended))


def replace_run(task: Task, *, device: torch.device) -> Path | None:
    """Move an existing run aside, to RUN.old-1 or the next free number; return its new name, None if there is none.

    Before that, the data of the new run is prepared in a new directory, and its model is built. The new directory then
    takes the name of the run, so that nothing is prepared twice.

    Raises:
        ConfigError, DataError: the new run cannot begin.
        CheckpointError: a living process trains in the old run, or it cannot be renamed.
    """
    start = STARTS.get("model")(task.config) if task.config.training.init_from else None
    check_files(task)  # a wrong path should be reported before any work
    run = Path(os.path.abspath(task.config.run_dir))  # "." has no name to which a number could be added
    if not is_there(run):
        return None
    with locked(run):
        pass  # an error if another process trains there
    if not is_there(run):  # there was nothing but the lock
        return None
    config, cache = task.config, task.config.data.cache_dir
    if cache is not None and Path(os.path.realpath(run)) in (real := Path(os.path.realpath(cache)), *real.parents):
        # The cache lies in the run, and would be moved with it.
        task = type(task)(dataclasses.replace(config, data=dataclasses.replace(config.data, cache_dir=None)))
    try:
        with new_directory(run, prefix=NEW) as folder:
            data = task.prepare(folder)
            task.build_validator(data, device=device, world=World(device))
            model = task.build_model(data.tokenizer, device=device)
            if start is not None:
                start.load(model, data.tokenizer)
            number = 1
            while (moved := run.with_name(f"{run.name}.old-{number}")).exists():
                number += 1
            with locked(run):
                try:
                    run.rename(moved)
                except OSError as error:
                    raise CheckpointError(f"{run}: cannot be moved to {moved}: {reason(error)}") from error
            folder.rename(run)
    except OSError as error:
        raise CheckpointError(f"{run}: cannot be replaced: {reason(error)}") from error
    return moved


def build_trainer(
    task: Task,
    data: Prepared,
    checkpoints: CheckpointStore,
    *,
    world: World,
    log: RunLog,
    limits: Limits,
    cpu: CpuClock,
    start: Any,
) -> Trainer:
    """A trainer at step 0, its weights drawn from the seed or taken from `start`, a member of STARTS."""
    config, training = task.config, task.config.training
    return Trainer(
        updater=build_updater(task, data.tokenizer, device=world.device, world=world, start=start),
        batches=task.build_batches(data, world=world),
        validator=task.build_validator(data, device=world.device, world=world),
        checkpoints=checkpoints,
        log=log,
        limits=limits,
        cpu=cpu,
        log_every=training.log_every,
        validate_every=training.validate_every,
        save_every=training.save_every,
        ranking=build_ranking(task, data.dev_facts),
        data_key=data.key,
        keeps_translations=config.evaluation.keep_translations,
        samples=task.build_samples(data, device=world.device),
        callbacks=Callbacks(choices(training.callbacks), is_main=world.is_main),
    )


def build_updater(
    task: Task,
    tokenizer: Tokenizer,
    *,
    device: torch.device,
    world: World | None = None,
    start: Any = None,
) -> Updater:
    """Model, optimizer, schedule and what else changes the weights."""
    config, training = task.config, task.config.training
    model = task.build_model(tokenizer, device=device)
    if start is not None:
        start.load(model, tokenizer)
    freeze(model, training.freeze)
    optimizer, schedule = OPTIMIZERS.get(training.optimizer), SCHEDULES.get(training.schedule)
    parameters = optimizer.groups(model) if hasattr(optimizer, "groups") else model.parameters()
    average = EMA(model, decay=training.ema_decay) if training.ema_decay else None
    if training.average_after is not None:
        average = PlateauAverage(model, patience=training.average_after)
    return Updater(
        model=model,
        optimizer=optimizer(
            parameters, lr=training.lr, options=component_options(optimizer, training.optimizer_options)
        ),
        schedule=schedule(
            lr=training.lr,
            hidden_size=model.outline(config.model).width,
            options=component_options(schedule, training.schedule_options),
        ),
        objective=Objective(
            loss=task.build_loss(),
            batch=task.training_batch,
            normalization=training.normalization,
            clip_norm=training.clip_norm,
        ),
        precision=choose_precision(training.precision, device=device),
        guard=BadUpdateGuard(max_bad_updates=training.max_bad_updates, skip_norm=training.skip_norm),
        ema=average,
        dropout_warmup_steps=training.dropout_warmup_steps,
        world=World(device) if world is None else world,
    )


def build_ranking(task: Task, facts: ValidationFacts | None = None) -> Ranking:
    """An empty ranking by `early_stopping_metric`, on the validation text of these facts as far as they are known."""
    config = task.config
    ranked_by = config.training.early_stopping_metric
    name, compared = ranked_by.partition("@")[0], conditions(config, facts)
    if name == "loss" or name in task.scores:
        return Ranking(metric=ranked_by, higher_is_better=task.scores.get(name, False), conditions=compared)
    (given,) = (choice.options for choice in choices(config.evaluation.metrics) if choice.name == name)
    member = METRICS.get(name)
    usual = dataclasses.asdict(member.Options())
    effective = member.effective(given, language=config.data.target_language)
    options = {option: value for option, value in effective.items() if usual[option] != value}
    better = bool(member.higher_is_better)
    return Ranking(metric=ranked_by, higher_is_better=better, options=options, conditions=compared)


def build_limits(config: Config, *, budget: Budget) -> Limits:
    """When training ends; ConfigError if it never would."""
    training = config.training
    patience = training.patience
    if training.max_steps is None and training.max_epochs is None and patience is None and budget == Budget():
        options = "--max-minutes or --max-cpu-minutes"
        raise ConfigError(f"training: needs an end: give max_steps, max_epochs or patience, or {options}")
    known = (training.max_steps, training.max_epochs, budget.cpu_seconds)
    if known == (None, None, None) and SCHEDULES.get(training.schedule).needs_end:
        limits = "max_steps, max_epochs or --max-cpu-minutes"
        raise ConfigError(f"training.schedule: '{training.schedule}' needs to know the end of training: give {limits}")
    return Limits(max_steps=training.max_steps, max_epochs=training.max_epochs, patience=patience, budget=budget)


AVERAGE = "average"
MAKER = {"made_by": "nmt-train"}
"""Metadata of an average that the next end of the run may replace."""


def test_outputs(task: Task) -> list[Path]:
    """The files written for the test data; each appears only when it is complete."""
    return [*task.test_outputs(), *(task.test_outputs(average=True) if task.config.training.average_last else [])]


def check_average(run: Path) -> None:
    """Raise CheckpointError if something else is in the place of this run's average.

    UnreadableError if this cannot be determined at this moment.
    """
    folder = run / AVERAGE
    if not is_there(folder):
        return
    file = folder / run_layout.WEIGHTS
    try:
        ours = is_file(file) and MAKER.items() <= read_metadata(file).items()
    except DamagedError:
        ours = False
    if not ours:
        raise CheckpointError(f"{folder}: is in the way of training.average_last; move it away")


def finish(task: Task, trainer: Trainer, data: Prepared) -> None:
    """Score the test data, if there is any, with the best checkpoint and, if asked for, the average.

    Translations go to RUN/test.<target language> and RUN/test.average.<target language>, with the name of a set before
    the language, the average of the newest checkpoints to RUN/average. The trainer's model has other weights
    afterwards. Several processes share the work; rank 0 writes.

    Raises:
        CheckpointError: checkpoints cannot be read or averaged.
        DataError: a file cannot be written.
    """
    run, model, world = trainer.checkpoints.run, trainer.updater.model, trainer.world
    if world.is_main:
        for file in test_outputs(task) if task.tests else ():
            file.unlink(missing_ok=True)  # of an earlier end of this run
        trainer.log.withdraw(("test", AVERAGE), step=trainer.progress.step)  # of one that was killed
    step = world.from_main(run_layout.best_step(run) if world.is_main else None)
    assert step is not None, "training has ended, so there is a checkpoint"
    if task.tests:
        model.load_state_dict(read_checkpoint(run_layout.step_dir(run, step)).weights)
        task.score_test(trainer, data, by=f"step-{step}", outputs=task.test_outputs())
    if task.config.training.average_last:
        with world.main_first():
            if world.is_main:
                _average(trainer, task.config.training.average_last)
        if task.tests:
            model.load_state_dict(read_weights(run / AVERAGE / run_layout.WEIGHTS))
            task.score_test(trainer, data, by=AVERAGE, outputs=task.test_outputs(average=True))


def _average(trainer: Trainer, wanted: int) -> None:
    """Make RUN/average again from the `wanted` newest checkpoints, or from all if there are fewer."""
    run = trainer.checkpoints.run
    check_average(run)
    doomed = run / f".deleting-{AVERAGE}"
    for leftover in (doomed, *run.glob(f".writing-{AVERAGE}-*")):  # of a killed process
        shutil.rmtree(leftover, ignore_errors=True)
    if (run / AVERAGE).exists():
        (run / AVERAGE).rename(doomed)  # a half-deleted one must not look like a foreign directory
        shutil.rmtree(doomed, ignore_errors=True)
    folders = [run_layout.step_dir(run, step) for step in run_layout.checkpoint_steps(run)[-wanted:]]
    average_checkpoints(folders, run / AVERAGE, run=run, metadata=MAKER)
    names = [folder.name for folder in folders]
    trainer.record(AVERAGE, {"path": AVERAGE, "average_last": wanted, "checkpoints": names})
    few = f" (training.average_last is {wanted}, but there are no more)" if len(names) < wanted else ""
    trainer.log.say(f"averaged {', '.join(names)} into {run / AVERAGE}{few}")
