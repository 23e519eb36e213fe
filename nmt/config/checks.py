"""Checks that need the registry or more than one key, and the defaults that follow from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from nmt.config.chosen import choices, complete_choices
from nmt.config.options import check_options
from nmt.config.problems import Problem
from nmt.config.schema import AUTO, Config, DataConfig, ModelConfig, TrainingConfig
from nmt.errors import refused
from nmt.registry import (
    CALLBACKS,
    CELLS,
    INITIALIZERS,
    LOSSES,
    METRICS,
    MODELS,
    OPTIMIZERS,
    SCHEDULES,
    SEARCHES,
    TASKS,
    TOKENIZERS,
    Registry,
)
from nmt.units import SIDES, unit_of

DEFAULT_BATCH_TOKENS = 2048
NO_SCALE = 1.0
"""`model.layer_norm_scale` in a complete configuration without layer norm."""

COMPONENTS: list[tuple[str, str, Registry[Any]]] = [
    ("model", "architecture", MODELS),
    ("model", "cell", CELLS),
    ("model", "initializer", INITIALIZERS),
    ("data", "tokenizer", TOKENIZERS),
    ("training", "loss", LOSSES),
    ("training", "optimizer", OPTIMIZERS),
    ("training", "schedule", SCHEDULES),
]
"""Section, key and registry of each component that has options in the key with `_options`."""


def complete(config: Config) -> tuple[Config, list[Problem]]:
    """Look up components, check their options and write the options' defaults into the configuration."""
    config, problems = _complete_task(config)
    for section, key, registry in COMPONENTS:
        name = getattr(getattr(config, section), key)
        config, wrong = _complete_component(config, section, key, registry, name=name)
        problems += wrong
    search = config.decoding.chosen_search
    config, wrong = _complete_component(config, "decoding", "search", SEARCHES, name=search, also=(AUTO,))
    problems += wrong
    model, wrong = _complete_sides(config.model, shared=not any(key.startswith("model.cell") for key, *_ in problems))
    problems += wrong
    if not model.layer_norm and model.layer_norm_scale == ModelConfig().layer_norm_scale:
        model = dataclasses.replace(model, layer_norm_scale=NO_SCALE)
    metrics, wrong = complete_choices(
        config.evaluation.metrics, METRICS, key="evaluation.metrics", told_apart="scores are distinguished"
    )
    problems += wrong
    callbacks, wrong = complete_choices(
        config.training.callbacks, CALLBACKS, key="training.callbacks", told_apart="they are distinguished"
    )
    problems += wrong
    evaluation = dataclasses.replace(config.evaluation, metrics=metrics)
    training = dataclasses.replace(config.training, callbacks=callbacks)
    if training.batch_tokens is None and training.batch_sentences is None:
        training = dataclasses.replace(training, batch_tokens=DEFAULT_BATCH_TOKENS)
    config = dataclasses.replace(config, model=model, training=training, evaluation=evaluation)
    task = TASKS.known(config.task)
    return (config if task is None else task.completed(config)), problems


def _complete_task(config: Config) -> tuple[Config, list[Problem]]:
    """The same for the task, which belongs to no section."""
    task = TASKS.known(config.task)
    if task is None:
        return config, [Problem("task", TASKS.unknown(config.task), component=TASKS.described(config.task))]
    options, problems = check_options(task, config.task_options, key="task_options")
    if options is not None:
        config = dataclasses.replace(config, task_options=dataclasses.asdict(options))
    return config, problems


def _complete_component(
    config: Config, section_name: str, key: str, registry: Registry[Any], *, name: str, also: Sequence[str] = ()
) -> tuple[Config, list[Problem]]:
    """The same for one key, whose value may also be one of `also`; `name` is the component that it selects."""
    if name not in registry.names():
        return config, [
            Problem(f"{section_name}.{key}", registry.unknown(name, also=also), component=registry.described(name))
        ]
    section = getattr(config, section_name)
    given = getattr(section, f"{key}_options")
    options, problems = check_options(registry.get(name), given, key=f"{section_name}.{key}_options")
    # otherwise another beam size would select another search
    if options is not None and getattr(section, key) not in also:
        section = dataclasses.replace(section, **{f"{key}_options": dataclasses.asdict(options)})
        config = dataclasses.replace(config, **{section_name: section})
    return config, problems


def _complete_sides(model: ModelConfig, *, shared: bool) -> tuple[ModelConfig, list[Problem]]:
    """The same for the units of encoder and decoder, if they have their own name or options.

    `shared`: `cell` and `cell_options` are valid, and so is what a side takes from them.
    """
    problems: list[Problem] = []
    complete: dict[str, Any] = {}
    for side in SIDES:
        named, given = getattr(model, f"{side}_cell"), getattr(model, f"{side}_cell_options")
        unit = unit_of(model, side)
        if unit.name not in CELLS.names():
            if named is not None:
                problems.append(Problem(f"model.{side}_cell", CELLS.unknown(named), component=CELLS.described(named)))
        elif named is not None or given:
            key = f"{side}_cell_options"
            own = unit.options if shared else given
            options, wrong = check_options(CELLS.get(unit.name), own, key=f"model.{key}")
            problems += wrong
            if options is not None:
                complete[key] = dataclasses.asdict(options)
    return dataclasses.replace(model, **complete), problems


def cross_checks(config: Config) -> list[Problem]:
    """Problems of names and of keys that must agree with each other."""
    groups = (
        _task_problems,
        _model_problems,
        _data_problems,
        _training_problems,
        _search_problems,
        _evaluation_problems,
    )
    return [problem for group in groups for problem in group(config)]


def _task_problems(config: Config) -> list[Problem]:
    task = TASKS.known(config.task)
    if task is None:
        return []
    problems = [] if check_options(task, config.task_options, key="")[1] else task.check(config)
    found = [Problem(key, message) for key, message in problems]
    architecture = MODELS.known(config.model.architecture)
    if architecture is not None and config.task not in architecture.tasks:
        allowed = ", ".join(name for name in MODELS.names() if config.task in MODELS.get(name).tasks)
        trained = " and ".join(f"'{task}'" for task in architecture.tasks)
        named = f"the task{'s' if len(architecture.tasks) > 1 else ''} {trained}"
        message = f"'{config.model.architecture}' is for {named}, not '{config.task}'. Allowed: {allowed}."
        found.append(Problem("model.architecture", message))
    tokenizer = TOKENIZERS.known(config.data.tokenizer)
    if tokenizer is not None and tokenizer.task not in (None, config.task):
        message = f"'{config.data.tokenizer}' is for the task '{tokenizer.task}', not '{config.task}'"
        found.append(Problem("data.tokenizer", message))
    return found


def _model_problems(config: Config) -> list[Problem]:
    model = config.model
    problems = []
    if model.architecture in MODELS.names():
        member = MODELS.get(model.architecture)
        if check_options(member, model.architecture_options, key="")[1]:  # which have already been reported
            usual, _ = check_options(member, {}, key="")
            model = dataclasses.replace(model, architecture_options=dataclasses.asdict(usual) if usual else {})
        problems += [Problem(f"model.{key}", message) for key, message in member.check(model)]
    if model.tie_embeddings == "all" and not config.data.tokenizer_options.get("joint", True):
        problems.append(Problem("model.tie_embeddings", "'all' needs data.tokenizer_options.joint: true"))
    if model.layer_norm_scale != NO_SCALE and not model.layer_norm:
        problems.append(Problem("model.layer_norm_scale", "has no effect without model.layer_norm: true"))
    ranged = {name: INITIALIZERS.get(name).reads_range for name in INITIALIZERS.names()}
    if model.init_range != ModelConfig().init_range and not ranged.get(model.initializer, True):
        allowed = ", ".join(name for name, reads in ranged.items() if reads)
        message = f"has no effect with the initializer '{model.initializer}', only with: {allowed}"
        problems.append(Problem("model.init_range", message))
    return problems


def _data_problems(config: Config) -> list[Problem]:
    data = config.data
    problems = []
    if data.source_language == data.target_language:
        problems.append(Problem("data.target_language", f"{data.target_language!r} is also the source language"))
    if data.generator != "none" and (data.train or data.dev or data.test):
        message = f"'{data.generator}' makes its own corpus: remove data.train, data.dev and data.test"
        problems.append(Problem("data.generator", message))
    for name, text in (("validation", "dev"), ("test", "test")):
        if getattr(data, f"{text}_references") is not None and getattr(data, text) is None:
            problems.append(Problem(f"data.{text}_references", f"needs {name} data in data.{text}"))
    return problems + _sampling_problems(data) + _tag_problems(data)


def _tag_problems(data: DataConfig) -> list[Problem]:
    """Report a tag of back-translated text that will not be one token."""
    if data.monolingual is None or data.monolingual_tag is None or data.tokenizer not in TOKENIZERS.names():
        return []
    member = TOKENIZERS.get(data.tokenizer)
    options, wrong = check_options(member, data.tokenizer_options, key="")
    message = None if wrong else member.symbol_problem(data.monolingual_tag, options=options)
    return [] if message is None else [Problem("data.monolingual_tag", f"'{data.monolingual_tag}' {message}")]


def _listed(names: str | list[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else names or []


def _sampling_problems(data: DataConfig) -> list[Problem]:
    weights, temperature = data.sampling_weights, data.sampling_temperature
    given = [
        key for key, is_given in {"weights": weights is not None, "temperature": temperature != 1}.items() if is_given
    ]
    prefixes = [name for names in (data.train, data.monolingual) for name in _listed(names)]
    if data.generator != "none":
        prefixes = [data.generator, *prefixes]
    texts = "data.train" if data.monolingual is None else "data.train and data.monolingual"
    message = None
    if len(given) == 2:
        message = "give either sampling_weights or sampling_temperature, not both"
    elif given and len(prefixes) < 2:
        message = "needs a list of several prefixes in data.train, or data.monolingual in addition"
    elif weights is not None and len(weights) != len(prefixes):
        message = f"{len(weights)} weights for the {len(prefixes)} prefixes of {texts}; give one for each"
    return [] if message is None else [Problem(f"data.sampling_{given[0]}", message)]


def _training_problems(config: Config) -> list[Problem]:
    training, problems = config.training, []
    if training.batch_tokens is not None and training.batch_sentences is not None:
        problems.append(Problem("training.batch_sentences", "give either batch_sentences or batch_tokens, not both"))
    if training.average_last > training.keep_last:
        message = f"averages {training.average_last} checkpoints, but training.keep_last keeps {training.keep_last}"
        problems.append(Problem("training.average_last", message))
    if training.average_after is not None and training.ema_decay:
        message = "not allowed with training.ema_decay; only one average is validated and saved"
        problems.append(Problem("training.average_after", message))
    problems += _loss_problems(training)
    task = TASKS.known(config.task)
    known = ["loss", *((task and task.scores) or [str(choice.name) for choice in choices(config.evaluation.metrics)])]
    if training.early_stopping_metric not in known:
        message = refused("", training.early_stopping_metric, known, problem="is not in evaluation.metrics")
        problems.append(Problem("training.early_stopping_metric", message))
    if config.data.dev is None and config.data.generator == "none":
        problems += [
            Problem(f"training.{key}", "needs validation data in data.dev") for key in _need_validation(config)
        ]
    return problems


def _loss_problems(training: TrainingConfig) -> list[Problem]:
    """Keys that have no effect with the loss."""
    if training.loss not in LOSSES.names():
        return []
    loss, problems = LOSSES.get(training.loss), []
    if training.label_smoothing and not loss.smooths:
        message = (
            f"{training.label_smoothing:g} is not possible: the loss '{training.loss}' does not smooth; set it to 0.0"
        )
        problems.append(Problem("training.label_smoothing", message))
    if training.normalization not in loss.normalizations:
        problem = f"is not possible with the loss '{training.loss}'"
        message = refused("", training.normalization, sorted(loss.normalizations), problem=problem)
        problems.append(Problem("training.normalization", message))
    return problems


def _evaluation_problems(config: Config) -> list[Problem]:
    evaluation, key = config.evaluation, "evaluation.keep_translations"
    problems = []
    if evaluation.keep_translations and config.data.dev is None and config.data.generator == "none":
        problems.append(Problem(key, "needs validation data in data.dev"))
    if evaluation.keep_translations and not evaluation.metrics:
        problems.append(Problem(key, "needs evaluation.metrics; without any nothing is translated"))
    return problems


def _need_validation(config: Config) -> list[str]:
    """Keys of the training section that have no effect without validation."""
    training = config.training
    needs = {
        "patience": training.patience is not None,
        "average_after": training.average_after is not None,
        "early_stopping_metric": training.early_stopping_metric != "loss",
        "schedule": training.schedule in SCHEDULES.names() and SCHEDULES.get(training.schedule).needs_validation,
    }
    return [key for key, needed in needs.items() if needed]


def _search_problems(config: Config) -> list[Problem]:
    decoding = config.decoding
    problems = list(_unknown_problems(config))
    if decoding.chosen_search in SEARCHES.names():
        found = SEARCHES.get(decoding.chosen_search).problems(decoding)
        problems += [Problem(key, message) for key, message in found]
    return problems


def _unknown_problems(config: Config) -> Iterator[Problem]:
    """Report replacement of unknown words if the tokenizer has no unknown words."""
    name, given = config.data.tokenizer, config.data.tokenizer_options
    if config.decoding.replace_unknown and name in TOKENIZERS.names():
        member = TOKENIZERS.get(name)
        options, wrong = check_options(member, given, key="")
        if not wrong and not member.may_have_unknown(options=options):
            message = f"the tokenizer '{name}' has no unknown words with these options, such as byte_fallback: true"
            yield Problem("decoding.replace_unknown", message)
