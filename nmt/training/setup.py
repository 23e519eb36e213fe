"""From a configuration and prepared data to a trainer: each part is built here, with its own options."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import nn

from nmt.config import component_options, dump, load_saved
from nmt.config.located import anchored
from nmt.config.options import choices
from nmt.config.schema import Config, TrainingConfig
from nmt.data import Tokenizer, load_tokenizer
from nmt.data.text_facts import ValidationFacts
from nmt.errors import CheckpointError, ConfigError
from nmt.interop import run_layout
from nmt.interop.exported import check_trainable
from nmt.interop.model_dir import check_weights, config_file, find_model
from nmt.interop.weights_file import check_finite, read_shapes, read_weights
from nmt.models.base import Seq2Seq
from nmt.registry import LOSSES, METRICS, OPTIMIZERS, SCHEDULES
from nmt.system import CpuClock
from nmt.training.callbacks import Callbacks
from nmt.training.checkpoint import CheckpointStore, ReadOnlyCheckpoints
from nmt.training.distributed import World
from nmt.training.ema import EMA, PlateauAverage
from nmt.training.logs import RunLog
from nmt.training.losses import Loss
from nmt.training.state import Ranking, conditions
from nmt.training.stopping import Budget, Limits
from nmt.training.task import Prepared, Task
from nmt.training.trainer import Trainer
from nmt.training.update import BadUpdateGuard, Objective, Updater, choose_precision


def build_trainer(
    task: Task,
    data: Prepared,
    *,
    run: Path,
    world: World,
    log: RunLog,
    limits: Limits,
    cpu: CpuClock | None = None,
    start: Path | None = None,
) -> Trainer:
    """A trainer at step 0, its weights drawn from the seed or taken from the model directory `start`.

    `cpu`: the CPU time that counts for the run; by default what is used from here on.
    """
    config, training = task.config, task.config.training
    return Trainer(
        updater=build_updater(task, data.tokenizer, device=world.device, world=world, start=start),
        batches=task.build_batches(data, world=world),
        validator=task.build_validator(data, device=world.device, world=world),
        checkpoints=build_checkpoints(config, run, world=world),
        log=log,
        limits=limits,
        cpu=CpuClock() if cpu is None else cpu,
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
    start: Path | None = None,
) -> Updater:
    """Model, optimizer, schedule and what else changes the weights."""
    config, training = task.config, task.config.training
    model = task.build_model(tokenizer, device=device)
    if start is not None:
        load_initial_weights(start, model, tokenizer=tokenizer)
    optimizer, schedule = OPTIMIZERS.get(training.optimizer), SCHEDULES.get(training.schedule)
    parameters = optimizer.groups(model) if hasattr(optimizer, "groups") else model.parameters()
    return Updater(
        model,
        optimizer(parameters, lr=training.lr, options=component_options(optimizer, training.optimizer_options)),
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
        ema=build_average(model, training),
        dropout_warmup_steps=training.dropout_warmup_steps,
        world=world,
    )


def build_average(model: nn.Module, training: TrainingConfig) -> EMA | None:
    """The average of the weights that is validated and saved; None for the weights themselves."""
    if training.average_after is not None:
        return PlateauAverage(model, patience=training.average_after)
    return EMA(model, decay=training.ema_decay) if training.ema_decay else None


def build_training_loss(training: TrainingConfig) -> Loss:
    """The loss configured in the section `training`."""
    kind = LOSSES.get(training.loss)
    options = component_options(kind, training.loss_options)
    loss: Loss = kind(label_smoothing=training.label_smoothing, options=options)
    return loss


def build_ranking(task: Task, facts: ValidationFacts | None = None) -> Ranking:
    """An empty ranking by `early_stopping_metric`, on the validation text of these facts as far as they are known."""
    config = task.config
    name = config.training.early_stopping_metric
    compared = conditions(config, facts)
    if name == "loss" or name in task.scores:
        return Ranking(metric=name, higher_is_better=task.scores.get(name, False), conditions=compared)
    (given,) = (choice.options for choice in choices(config.evaluation.metrics) if choice.name == name)
    member = METRICS.get(name)
    usual = dataclasses.asdict(member.Options())
    effective = member.effective(given, language=config.data.target_language)
    options = {option: value for option, value in effective.items() if usual[option] != value}
    better = bool(member.higher_is_better)
    return Ranking(metric=name, higher_is_better=better, options=options, conditions=compared)


def build_checkpoints(config: Config, run: Path, *, world: World | None = None) -> CheckpointStore:
    """The run's checkpoints, which rank 0 alone writes."""
    training = config.training
    store = CheckpointStore if world is None or world.is_main else ReadOnlyCheckpoints
    return store(run, keep_last=training.keep_last, keep_best=training.keep_best, config_text=dump(anchored(config)))


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


KEY = "training.init_from"


def find_initial_weights(path: str) -> Path:
    """The directory whose weights `training.init_from` means: of a run its best checkpoint. ConfigError for none."""
    try:
        directory = find_model(path)
        check_trainable(directory)
        return directory
    except CheckpointError as error:
        raise ConfigError(f"{KEY}: {error}") from error


def load_initial_weights(directory: Path, model: Seq2Seq, *, tokenizer: Tokenizer) -> None:
    """Give `model` the weights in `directory`.

    Raises ConfigError where that model has another tokenizer, so that its words are others, or other sizes, and
    CheckpointError where its files are damaged or hold NaN or infinite weights.
    """
    theirs = load_tokenizer(directory, load_saved(config_file(directory), ()))
    if theirs.fingerprint() != tokenizer.fingerprint():
        raise ConfigError(
            f"{KEY}: {directory} has another tokenizer than this run; "
            "name the files in its tokenizer directory in data.tokenizer_options"
        )
    file = directory / run_layout.WEIGHTS
    shapes = read_shapes(file)
    try:
        check_weights(model, shapes, file=file)  # before the rest is read, which can be much
    except CheckpointError as error:
        raise ConfigError(f"{KEY}: {error}") from error
    weights = read_weights(file)
    check_weights(model, weights, file=file)
    model.load_state_dict(weights)
    check_finite(model.state_dict(), file=file)
