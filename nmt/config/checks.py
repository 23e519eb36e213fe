"""Checks that need the registry or more than one key, and the defaults that follow from them: mistakes, contradictions,
and settings that have a doubtful effect together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nmt.config.options import check_options, choices, complete_choices, known_options
from nmt.config.problems import COMPONENTS, Problem
from nmt.config.schema import AUTO, SECTIONS, SIDES, Config, DataConfig, EvaluationConfig, ModelConfig, TrainingConfig
from nmt.errors import refused
from nmt.registry import (
    CALLBACKS,
    CELLS,
    INITIALIZERS,
    LOSSES,
    METRICS,
    MODELS,
    SCHEDULES,
    SEARCHES,
    TASKS,
    TEXTS,
    TOKENIZERS,
)
from nmt.texts import SEVERAL, as_list, sets_of

DEFAULT_BATCH_TOKENS = 2048
NO_SCALE = 1.0
"""`model.layer_norm_scale` in a complete configuration without layer norm."""


def complete(config: Config) -> tuple[Config, list[Problem]]:
    """Look up components, check their options and write the options' defaults into the configuration."""
    task, problems = known_options(TASKS, config.task, config.task_options, key="task")
    if task is not None:
        config = dataclasses.replace(config, task_options=dataclasses.asdict(task))
    found: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, registry in COMPONENTS.items():
        section, key = name.split(".")
        own = getattr(config, section)
        also = (AUTO,) if registry is SEARCHES else ()
        chosen = own.chosen_search if also else getattr(own, key)
        options, wrong = known_options(registry, chosen, getattr(own, f"{key}_options"), key=name, also=also)
        problems += wrong
        if options is not None and getattr(own, key) not in also:  # else another beam size would select another search
            found[section][f"{key}_options"] = dataclasses.asdict(options)
    is_right = not any(key.startswith("model.cell") for key, *_ in problems)
    model, wrong = _complete_sides(dataclasses.replace(config.model, **found["model"]), shared=is_right)
    problems += wrong
    if not model.layer_norm and model.layer_norm_scale == ModelConfig().layer_norm_scale:
        model = dataclasses.replace(model, layer_norm_scale=NO_SCALE)
    for section, key, registry, told_apart in (
        ("evaluation", "metrics", METRICS, "scores are distinguished"),
        ("training", "callbacks", CALLBACKS, "they are distinguished"),
    ):
        entries = getattr(getattr(config, section), key)
        found[section][key], wrong = complete_choices(entries, registry, key=f"{section}.{key}", told_apart=told_apart)
        problems += wrong
    if config.training.batch_tokens is None and config.training.batch_sentences is None:
        found["training"]["batch_tokens"] = DEFAULT_BATCH_TOKENS
    found.pop("model")
    changed = {name: dataclasses.replace(getattr(config, name), **changes) for name, changes in found.items()}
    config = dataclasses.replace(config, model=model, **changed)
    member = TASKS.known(config.task)
    return (config if member is None else member.completed(config)), problems


def _complete_sides(model: ModelConfig, *, shared: bool) -> tuple[ModelConfig, list[Problem]]:
    """The same for the units of encoder and decoder, if they have their own name or options.

    `shared`: `cell` and `cell_options` are valid, and so is what a side takes from them.
    """
    problems: list[Problem] = []
    complete: dict[str, Any] = {}
    for side in SIDES:
        named, given = getattr(model, f"{side}_cell"), getattr(model, f"{side}_cell_options")
        unit = model.unit_of(side)
        if named is not None or (given and unit.name in CELLS.names()):
            own = unit.options if shared else given
            options, wrong = known_options(CELLS, unit.name, own, key=f"model.{side}_cell")
            problems += wrong
            if options is not None:
                complete[f"{side}_cell_options"] = dataclasses.asdict(options)
    return dataclasses.replace(model, **complete), problems


Found = tuple[str, str]
"""A key, and what is wrong with it."""


def cross_checks(config: Config) -> Iterator[Found]:
    """Problems of names and of keys that must agree with each other."""
    yield from _task_problems(config)
    yield from _model_problems(config)
    yield from _data_problems(config.data)
    yield from TEXTS.get("tags").problems(config)
    yield from _training_problems(config)
    yield from _search_problems(config)


def _task_problems(config: Config) -> Iterator[Found]:
    task = TASKS.known(config.task)
    if task is None:
        return
    if not check_options(task, config.task_options, key="")[1]:
        yield from task.check(config)
    for key in ("dev", "test"):
        if config.task != "translation" and isinstance(getattr(config.data, key), Mapping):
            yield f"data.{key}", f"the task '{config.task}' knows no sets with names; give a list"
    architecture = MODELS.known(config.model.architecture)
    if architecture is not None and config.task not in architecture.tasks:
        allowed = ", ".join(name for name in MODELS.names() if config.task in MODELS.get(name).tasks)
        trained = " and ".join(f"'{task}'" for task in architecture.tasks)
        named = f"the task{'s' if len(architecture.tasks) > 1 else ''} {trained}"
        message = f"'{config.model.architecture}' is for {named}, not '{config.task}'. Allowed: {allowed}."
        yield "model.architecture", message
    tokenizer = TOKENIZERS.known(config.data.tokenizer)
    if tokenizer is not None and tokenizer.task not in (None, config.task):
        yield "data.tokenizer", f"'{config.data.tokenizer}' is for the task '{tokenizer.task}', not '{config.task}'"


def _model_problems(config: Config) -> Iterator[Found]:
    model = config.model
    if (member := MODELS.known(model.architecture)) is not None:
        if check_options(member, model.architecture_options, key="")[1]:  # which have already been reported
            usual, _ = check_options(member, {}, key="")
            model = dataclasses.replace(model, architecture_options=dataclasses.asdict(usual) if usual else {})
        yield from ((f"model.{key}", message) for key, message in member.check(model))
    tokens = config.data.tokenizer_options
    if model.tie_embeddings == "all" and not (tokens.get("joint", True) or tokens.get("same_ids")):
        yield "model.tie_embeddings", "'all' needs data.tokenizer_options.joint: true"
    if model.layer_norm_scale != NO_SCALE and not model.layer_norm:
        yield "model.layer_norm_scale", "has no effect without model.layer_norm: true"
    ranged = {name: INITIALIZERS.get(name).reads_range for name in INITIALIZERS.names()}
    if model.init_range != ModelConfig().init_range and not ranged.get(model.initializer, True):
        allowed = ", ".join(name for name, reads in ranged.items() if reads)
        yield "model.init_range", f"has no effect with the initializer '{model.initializer}', only with: {allowed}"


def _data_problems(data: DataConfig) -> Iterator[Found]:
    if data.source_language == data.target_language != SEVERAL:
        yield "data.target_language", f"{data.target_language!r} is also the source language"
    if data.generator != "none" and (data.train or data.dev or data.test):
        yield "data.generator", f"'{data.generator}' makes its own corpus: remove data.train, data.dev and data.test"
    for name, text in (("validation", "dev"), ("test", "test")):
        if getattr(data, f"{text}_references") is not None and getattr(data, text) is None:
            yield f"data.{text}_references", f"needs {name} data in data.{text}"
    yield from _sampling_problems(data)


def _sampling_problems(data: DataConfig) -> Iterator[Found]:
    weights, temperature = data.sampling_weights, data.sampling_temperature
    given = [
        name for name, is_given in (("weights", weights is not None), ("temperature", temperature != 1)) if is_given
    ]
    prefixes = [*as_list(data.train), *as_list(data.monolingual)]
    if data.generator != "none":
        prefixes = [data.generator, *prefixes]
    texts = "data.train" if data.monolingual is None else "data.train and data.monolingual"
    if len(given) == 2:
        yield "data.sampling_weights", "give either sampling_weights or sampling_temperature, not both"
    elif given and len(prefixes) < 2:
        message = "needs a list of several prefixes in data.train, or data.monolingual in addition"
        yield f"data.sampling_{given[0]}", message
    elif weights is not None and len(weights) != len(prefixes):
        message = f"{len(weights)} weights for the {len(prefixes)} prefixes of {texts}; give one for each"
        yield "data.sampling_weights", message


def _training_problems(config: Config) -> Iterator[Found]:
    training = config.training
    if training.batch_tokens is not None and training.batch_sentences is not None:
        yield "training.batch_sentences", "give either batch_sentences or batch_tokens, not both"
    if training.new_vocabulary and (training.init_from is None or config.task != "translation"):
        yield "training.new_vocabulary", "needs training.init_from and the task 'translation'"
    if training.average_last > training.keep_last:
        message = f"averages {training.average_last} checkpoints, but training.keep_last keeps {training.keep_last}"
        yield "training.average_last", message
    if training.average_after is not None and training.ema_decay:
        yield "training.average_after", "not allowed with training.ema_decay; only one average is validated and saved"
    if (loss := LOSSES.known(training.loss)) is not None:
        if training.label_smoothing and not loss.smooths:
            message = f"is not possible: the loss '{training.loss}' does not smooth; set it to 0.0"
            yield "training.label_smoothing", f"{training.label_smoothing:g} {message}"
        if training.normalization not in loss.normalizations:
            problem = f"is not possible with the loss '{training.loss}'"
            message = refused("", training.normalization, sorted(loss.normalizations), problem=problem)
            yield "training.normalization", message
    task = TASKS.known(config.task)
    known = ["loss", *((task and task.scores) or [str(choice.name) for choice in choices(config.evaluation.metrics)])]
    known += [f"{score}@{name}" for name in sets_of(config.data.dev) if name for score in known]
    if training.early_stopping_metric not in known:
        message = refused("", training.early_stopping_metric, known, problem="is not in evaluation.metrics")
        yield "training.early_stopping_metric", message
    if not _has_validation(config):
        needs = {
            "patience": training.patience is not None,
            "average_after": training.average_after is not None,
            "early_stopping_metric": training.early_stopping_metric != "loss",
            "schedule": training.schedule in SCHEDULES.names() and SCHEDULES.get(training.schedule).needs_validation,
        }
        for key in (key for key, needed in needs.items() if needed):
            yield f"training.{key}", "needs validation data in data.dev"


def _has_validation(config: Config) -> bool:
    return config.data.dev is not None or config.data.generator != "none"


def _search_problems(config: Config) -> Iterator[Found]:
    decoding = config.decoding
    if decoding.replace_unknown:
        name = config.data.tokenizer
        member = TOKENIZERS.known(name)
        options = None if member is None else check_options(member, config.data.tokenizer_options, key="")[0]
        if member and options is not None and not member.may_have_unknown(options=options):
            message = f"the tokenizer '{name}' has no unknown words with these options, such as byte_fallback: true"
            yield "decoding.replace_unknown", message
    search = SEARCHES.known(decoding.chosen_search)
    if search is not None:
        yield from search.problems(decoding)
    evaluation, key = config.evaluation, "evaluation.keep_translations"
    if evaluation.keep_translations and not _has_validation(config):
        yield key, "needs validation data in data.dev"
    if evaluation.keep_translations and not evaluation.metrics:
        yield key, "needs evaluation.metrics; without any nothing is translated"


Given = Mapping[str, Any]
"""The values in the file and on the command line, without defaults."""


def contradictions(config: Config, given: Given) -> Iterator[Found]:
    """Contradictions, which are errors. Not checked for a saved run, which was trained with its settings."""
    options, peak = _rates(config)
    key, schedule = "training.schedule_options", config.training.schedule
    lowest, highest = getattr(options, "min_lr", 0.0), getattr(options, "max_lr", None)
    reached = f"the highest rate of '{schedule}' with training.lr: {config.training.lr:g}"
    if lowest > peak:
        yield f"{key}.min_lr", f"{lowest:g} is above {peak:g}, {reached}"
    chosen = _section(_section(given, "training"), "schedule_options")
    if "max_lr" not in chosen and highest is not None and peak > highest:
        yield f"{key}.max_lr", f"its default, {highest:g}, cuts off {peak:g}, {reached}; set it"
    if not _has_validation(config) and config.training.keep_best not in (0, TrainingConfig().keep_best):
        yield "training.keep_best", "needs validation data in data.dev"
    start = config.training.init_from
    if start is not None and os.path.realpath(start) == os.path.realpath(config.run_dir):
        message = "is run_dir itself; a run resumes automatically, and a new run needs another run_dir"
        yield "training.init_from", message
    if (task := TASKS.known(config.task)) is not None:
        for key, instead in task.unused_in(config.task_options).items():  # keys that have no effect with the task
            section, _, name = key.partition(".")
            if name in _section(given, section) if name else given.get(section):
                yield key, f"has no effect with the task '{config.task}'{instead and f': {instead}'}"


def _section(given: Given, name: str) -> Given:
    """A mapping in what is given; an empty one where there is none."""
    inside = given.get(name)
    return inside if isinstance(inside, Mapping) else {}


def _rates(config: Config) -> tuple[Any, float]:
    """The options of the schedule, and its highest rate before the limit is applied.

    None and 0 if the schedule is unknown, its options are wrong, or a plugin does not give its highest rate.
    """
    training, model = config.training, config.model
    member = SCHEDULES.known(training.schedule)
    if member is None or not hasattr(member, "peak"):
        return None, 0.0
    options, wrong = check_options(member, training.schedule_options, key="")
    if wrong:
        return None, 0.0
    architecture, width = MODELS.known(model.architecture), model.hidden_size  # that schedules use
    if architecture is not None and not check_options(architecture, model.architecture_options, key="")[1]:
        width = architecture.outline(model).width
    return options, member.peak(lr=training.lr, hidden_size=width, options=options)


def without_unit(model: ModelConfig) -> str | None:
    """Why `model.cell` has no effect; None where a layer may have that unit."""
    architecture = MODELS.known(model.architecture)
    reason: Callable[[ModelConfig], str | None] | None = getattr(architecture, "without_cell", None)
    if reason is not None and not check_options(architecture, model.architecture_options, key="")[1]:
        why = reason(model)
        if why is not None:
            return why
    others = all(getattr(model, f"{side}_cell") not in (None, model.cell) for side in SIDES)
    return "encoder_cell and decoder_cell are other units" if others else None


def unused_unit_keys(model: ModelConfig) -> list[str]:
    """`cell` and `cell_options` where they have no effect and their usual values, else nothing."""
    usual = ModelConfig().cell
    if model.cell != usual or without_unit(model) is None:
        return []
    options, _ = check_options(CELLS.get(usual), {}, key="")
    return ["cell", "cell_options"] if model.cell_options in ({}, dataclasses.asdict(options)) else []


def odd_settings(config: Config, given: Given) -> Iterator[Found]:
    """Settings that work, but are probably not intended."""
    yield from _unread(config.model, _section(given, "model"))
    yield from _never_reached(config)
    yield from _odd_rate(config)
    yield from _unused(config)
    trained = [*as_list(config.data.train), *as_list(config.data.monolingual)]
    for name in ("dev", "test"):
        for prefix in as_list(getattr(config.data, name)):
            if prefix in trained:
                yield f"data.{name}", f"'{prefix}' is also training text, so scores on it mean little"
    # R-Drop without dropout, as far as the options of architectures show
    model = config.model
    others = (value for key, value in model.architecture_options.items() if key.endswith("dropout"))
    if config.training.loss == "r_drop" and not any((model.dropout, model.recurrent_dropout, *others)):
        yield "training.loss", "'r_drop' compares two passes with different dropout, but model.dropout is 0"


def _unread(model: ModelConfig, given: Given) -> Iterator[Found]:
    """A unit that no layer has, and keys with unusual values that the architecture does not read.

    No errors, because --set cannot take the keys out of a file.
    """
    if (why := without_unit(model)) is not None:
        if "cell" in given:
            yield "model.cell", f"'{model.cell}' has no effect: {why}"
        if given.get("cell_options"):
            yield "model.cell_options", f"has no effect: {why}"
    for name in getattr(MODELS.known(model.architecture), "unread", ()):
        if given.get(name, usual := getattr(ModelConfig(), name)) != usual:
            yield f"model.{name}", f"has no effect with '{model.architecture}'"


def _never_reached(config: Config) -> Iterator[Found]:
    """Events that never happen because training ends before them."""
    training, end = config.training, config.training.max_steps
    if end is None:
        return
    where = f"beyond training.max_steps ({end})"
    consequences = {"save_every": "only the last update is saved", "sample_every": "no text is ever sampled"}
    if _has_validation(config):
        consequences = {"validate_every": "only the last update is validated", **consequences}
    for name, consequence in consequences.items():
        if (getattr(training, name) or 0) > end:
            yield f"training.{name}", f"{getattr(training, name)} is {where}: {consequence}"
    warmup = training.schedule_options.get("warmup_steps", 0) * training.schedule_options.get("replicas", 1)
    if warmup > end:
        message = f"the rate grows until update {warmup}, {where}: it never reaches its highest value"
        yield "training.schedule_options.warmup_steps", message


def _odd_rate(config: Config) -> Iterator[Found]:
    training, (options, peak) = config.training, _rates(config)
    highest = getattr(options, "max_lr", None)
    if highest is not None and training.schedule != "cosine" and peak > highest:
        message = f"{highest:g} cuts off the highest rate of '{training.schedule}', {peak:g}"
        yield "training.schedule_options.max_lr", message
    if training.skip_norm is not None and training.clip_norm >= training.skip_norm:
        yield "training.skip_norm", f"skips every update that training.clip_norm ({training.clip_norm:g}) would clip"
    patience = training.schedule_options.get("patience", 0)
    if training.patience is not None and patience >= training.patience:
        limit = f"{patience} is not below training.patience ({training.patience})"
        yield "training.schedule_options.patience", f"{limit}: training ends before the rate shrinks"


def _unused(config: Config) -> Iterator[Found]:
    """Keys that the other keys make useless."""
    training, evaluation = config.training, config.evaluation
    if not _has_validation(config):  # which configurations without validation text often keep
        for section, name, usual in (
            ("training", "validate_every", None),
            ("evaluation", "max_sentences", None),
            ("evaluation", "samples", EvaluationConfig().samples),
        ):
            if getattr(getattr(config, section), name) not in (0, usual):
                yield f"{section}.{name}", "has no effect without validation data in data.dev"
    elif not evaluation.metrics and evaluation.max_sentences is not None:
        yield "evaluation.max_sentences", "has no effect without evaluation.metrics: nothing is translated"
    if training.sample_every is None and training.sample_sentences != TrainingConfig().sample_sentences:
        yield "training.sample_sentences", "has no effect without training.sample_every"
    if (
        training.guided_alignment is None
        and training.guided_alignment_weight != TrainingConfig().guided_alignment_weight
    ):
        yield "training.guided_alignment_weight", "has no effect without training.guided_alignment"
    if training.average_last == 1:
        yield "training.average_last", "the mean of 1 checkpoint is that checkpoint"
    if training.batch_tokens is not None and training.batch_tokens <= config.data.max_length:
        message = f"{training.batch_tokens} is not above data.max_length ({config.data.max_length}): "
        yield "training.batch_tokens", f"{message}longer sentences are batches by themselves"
    if config.data.monolingual is None and config.data.monolingual_tag != DataConfig().monolingual_tag:
        yield "data.monolingual_tag", "has no effect without data.monolingual"
    if config.data.context == "none" and config.data.context_sentences != DataConfig().context_sentences:
        yield "data.context_sentences", "has no effect without data.context"
