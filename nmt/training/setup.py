"""From a configuration and prepared data to a trainer: each part is built here, with its own options."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from nmt.config import component_options, dump
from nmt.config.chosen import choices
from nmt.config.schema import Config, DecodingConfig, TrainingConfig
from nmt.cpu_time import CpuClock
from nmt.data import BatchSampler, Corpus, PreparedData, Tokenizer
from nmt.data.monolingual import training_prefixes
from nmt.data.resegmentation import Resegmentation, Sides
from nmt.data.sampling import sampling_shares
from nmt.data.validation_facts import ValidationFacts
from nmt.errors import ConfigError, counted
from nmt.evaluation import Metric, build_metric
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.registry import LOSSES, METRICS, OPTIMIZERS, SCHEDULES
from nmt.search.glossary import load_glossary
from nmt.search.shortlist import load_shortlist
from nmt.search.translation import Translation
from nmt.search.translator import Translator
from nmt.training.batches import BatchStream
from nmt.training.callbacks import build_callbacks
from nmt.training.checkpoint import CheckpointStore, ReadOnlyCheckpoints
from nmt.training.conditions import conditions
from nmt.training.distributed import Share, World
from nmt.training.ema import EMA
from nmt.training.gradients import BadUpdateGuard
from nmt.training.initial_weights import load_initial_weights
from nmt.training.kept import KeptTranslations
from nmt.training.logs import RunLog
from nmt.training.losses import Loss, build_loss
from nmt.training.memory import check_size
from nmt.training.optimizers import build_optimizer
from nmt.training.precision import choose_precision
from nmt.training.random_state import seed_everything
from nmt.training.samples import TrainingSamples
from nmt.training.schedules import build_schedule
from nmt.training.state import Ranking
from nmt.training.stopping import Budget, Limits
from nmt.training.trainer import Frequencies, Trainer
from nmt.training.update import Objective, Updater
from nmt.training.validation import Translate, Validator

AS_IT_IS = Sides()
"""Training text that is the same in all epochs."""
WINDOW = 256
"""Lines that validation translates together; between two windows it can be interrupted."""


def build_trainer(
    config: Config,
    data: PreparedData,
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
    training = config.training
    return Trainer(
        updater=build_updater(config, data.tokenizer, device=world.device, world=world, start=start),
        batches=build_batches(config, data.train, world=world, sides=data.sides),
        validator=build_validator(config, data, device=world.device, world=world),
        checkpoints=build_checkpoints(config, run, world=world),
        log=log,
        limits=limits,
        cpu=CpuClock() if cpu is None else cpu,
        frequencies=Frequencies(
            log_every=training.log_every, validate_every=training.validate_every, save_every=training.save_every
        ),
        ranking=build_ranking(config, data.dev_facts),
        data_key=data.train.key,
        kept=KeptTranslations(run) if config.evaluation.keep_translations else None,
        samples=build_samples(config, data, device=world.device),
        callbacks=build_callbacks(config, world),
    )


def build_updater(
    config: Config,
    tokenizer: Tokenizer,
    *,
    device: torch.device,
    world: World | None = None,
    start: Path | None = None,
) -> Updater:
    """Model, optimizer, schedule and what else changes the weights."""
    training = config.training
    model = build_network(config, tokenizer, device=device)
    if start is not None:
        load_initial_weights(start, model, tokenizer=tokenizer)
    optimizer = OPTIMIZERS.get(training.optimizer)
    optimizer_options = component_options(optimizer, training.optimizer_options)
    parameters = optimizer.groups(model) if hasattr(optimizer, "groups") else model.parameters()
    schedule_options = component_options(SCHEDULES.get(training.schedule), training.schedule_options)
    hidden_size = model.outline(config.model).width
    return Updater(
        model,
        build_optimizer(training.optimizer, parameters, lr=training.lr, options=optimizer_options),
        schedule=build_schedule(training.schedule, lr=training.lr, hidden_size=hidden_size, options=schedule_options),
        objective=Objective(
            loss=build_training_loss(training),
            normalization=training.normalization,
            clip_norm=training.clip_norm,
        ),
        precision=choose_precision(training.precision, device=device),
        guard=BadUpdateGuard(max_bad_updates=training.max_bad_updates, skip_norm=training.skip_norm),
        ema=EMA(model, decay=training.ema_decay) if training.ema_decay else None,
        dropout_warmup_steps=training.dropout_warmup_steps,
        world=world,
    )


def build_training_loss(training: TrainingConfig) -> Loss:
    """What the section `training` says is minimised."""
    options = component_options(LOSSES.get(training.loss), training.loss_options)
    return build_loss(training.loss, label_smoothing=training.label_smoothing, options=options)


def build_network(config: Config, tokenizer: Tokenizer, *, device: torch.device) -> Seq2Seq:
    """The model, its weights drawn from the seed; ConfigError where it cannot fit into memory."""
    check_size(config, (tokenizer.source_size, tokenizer.target_size), device=device)
    seed_everything(config.seed)
    return build_model(config.model, tokenizer.source_size, tokenizer.target_size).to(device)


def build_sampler(config: Config, corpus: Corpus, *, sides: Sides = AS_IT_IS) -> BatchSampler:
    """The order of the training data; DataError for a corpus to sample from that has no pair.

    `sides`: how it is split anew in each epoch, of the prepared data.
    """
    data = config.data
    shares = None
    if data.sampling_weights is not None or data.sampling_temperature != 1.0:
        sizes = [part.pairs for part in corpus.parts]
        shares = sampling_shares(
            sizes, training_prefixes(data), temperature=data.sampling_temperature, weights=data.sampling_weights
        )
    anew = None
    if any(sides):
        anew = Resegmentation(corpus, sides, seed=config.seed, max_length=data.max_length)
    return BatchSampler(
        corpus,
        batch_tokens=config.training.batch_tokens,
        batch_sentences=config.training.batch_sentences,
        pool_batches=config.data.pool_batches,
        seed=config.seed,
        shares=shares,
        anew=anew,
    )


def describe_sampling(config: Config, corpus: Corpus) -> list[str]:
    """How much of an epoch comes from each corpus, for people; nothing where all are simply taken once."""
    order = build_sampler(config, corpus).order
    if order.shares is None:
        return []
    rows = zip(training_prefixes(config.data), corpus.parts, order.shares, order.uses(), strict=True)
    return [
        f"train: {share:.1%} of an epoch from {prefix}: {counted(part.pairs, 'pair')}, each {uses:.3g} times on average"
        for prefix, part, share, uses in rows
    ]


def build_batches(
    config: Config, corpus: Corpus, *, world: World | None = None, sides: Sides = AS_IT_IS
) -> BatchStream:
    """The training batches, or this process's part of them; `sides` as for `build_sampler`."""
    share = None if world is None else Share(world.rank, world.size)
    accumulate = config.training.accumulate
    return BatchStream(
        corpus,
        build_sampler(config, corpus, sides=sides),
        accumulate=accumulate,
        share=share,
        seed=config.seed,
        pinned=world is not None and world.device.type == "cuda",
    )


def build_validator(
    config: Config, data: PreparedData, *, device: torch.device, world: World | None = None
) -> Validator | None:
    """What is measured on the development corpus; None without one."""
    if data.dev is None or data.dev_text is None:
        return None
    return Validator(
        corpus=data.dev,
        sources=data.dev_text.source,
        references=data.dev_references,
        metrics=build_metrics(config),
        translate=build_translate(data.tokenizer, config.decoding, device=device),
        device=device,
        max_sentences=config.evaluation.max_sentences,
        samples=config.evaluation.samples,
        world=World(device) if world is None else world,
    )


def build_samples(config: Config, data: PreparedData, *, device: torch.device) -> TrainingSamples | None:
    """What translates training text between validations; None unless that is asked for."""
    every = config.training.sample_every
    if every is None:
        return None
    return TrainingSamples(
        corpus=data.train,
        tokenizer=data.tokenizer,
        decoding=dataclasses.replace(config.decoding, ensemble_weights=None),
        device=device,
        every=every,
        sentences=config.training.sample_sentences,
    )


def build_metrics(config: Config) -> list[Metric]:
    """What the translations of validation and test text are scored with; ConfigError for what is not installed."""
    metrics = []
    for name, options in choices(config.evaluation.metrics):
        metrics.append(build_metric(name, options, language=config.data.target_language))
        metrics[-1].scorer()  # which fails for want of a package or file that a tokenizer needs
    return metrics


def build_translate(tokenizer: Tokenizer, decoding: DecodingConfig, *, device: torch.device) -> Translate:
    """The configured search from text to text, with whatever weights the model has at the moment."""
    decoding = dataclasses.replace(decoding, ensemble_weights=None)  # which are for several models
    if decoding.shortlist is not None:
        load_shortlist(decoding.shortlist, tokenizer)  # what cannot work shows before the first update
    if decoding.glossary is not None:
        load_glossary(decoding.glossary)

    def translate(model: Seq2Seq, lines: Sequence[str]) -> Iterator[Translation]:
        yield from Translator(model, tokenizer, decoding, device=device, window=WINDOW).translations(lines)

    return translate


def build_ranking(config: Config, facts: ValidationFacts | None = None) -> Ranking:
    """An empty ranking by `early_stopping_metric`, on the validation text of these facts as far as they are known."""
    name = config.training.early_stopping_metric
    compared = conditions(config, facts)
    if name == "loss":
        return Ranking(metric=name, higher_is_better=False, conditions=compared)
    (given,) = (choice.options for choice in choices(config.evaluation.metrics) if choice.name == name)
    member = METRICS.get(name)
    usual = dataclasses.asdict(member.Options())
    options = {option: value for option, value in given.items() if usual[option] != value}
    better = bool(member.higher_is_better)
    return Ranking(metric=name, higher_is_better=better, options=options, conditions=compared)


def build_checkpoints(config: Config, run: Path, *, world: World | None = None) -> CheckpointStore:
    """The run's checkpoints, which rank 0 alone writes."""
    training = config.training
    store = CheckpointStore if world is None or world.is_main else ReadOnlyCheckpoints
    return store(run, keep_last=training.keep_last, keep_best=training.keep_best, config_text=dump(config))


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
