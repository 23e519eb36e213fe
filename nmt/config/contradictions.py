"""Settings that are valid separately but contradict each other, or have a doubtful effect together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from nmt.config.options import check_options
from nmt.config.problems import Problem
from nmt.config.schema import Config, DataConfig, EvaluationConfig, ModelConfig, TrainingConfig
from nmt.registry import CELLS, MODELS, SCHEDULES, TASKS
from nmt.units import SIDES

Given = Mapping[str, Any]
"""The values in the file and on the command line, without defaults."""


def contradictions(config: Config, given: Given) -> list[Problem]:
    """Contradictions, which are errors. Not checked for a saved run, which was trained with its settings."""
    return [
        *_rate(config, given),
        *_without_validation(config),
        *_start(config),
        *_without_use(config, given),
    ]


def odd_settings(config: Config, given: Given) -> list[Problem]:
    """Settings that work, but are probably not intended."""
    return [
        *_idle_unit(config, given),
        *_unread(config, given),
        *_never_reached(config),
        *_odd_rate(config),
        *_idle_validation(config),
        *_unused(config),
        *_idle_tag(config.data),
        *_same_text(config.data),
        *_equal_passes(config),
    ]


class _Rate(NamedTuple):
    """The known facts about the rates of the configured schedule."""

    options: Any
    peak: float
    """The highest rate, before the limit is applied."""


def _rates(config: Config) -> _Rate | None:
    """None if the schedule is unknown, its options are wrong, or a plugin does not give its highest rate."""
    training = config.training
    if training.schedule not in SCHEDULES.names():
        return None
    member = SCHEDULES.get(training.schedule)
    options, wrong = check_options(member, training.schedule_options, key="")
    if wrong or not hasattr(member, "peak"):
        return None
    return _Rate(options, member.peak(lr=training.lr, hidden_size=_width(config.model), options=options))


def _width(model: ModelConfig) -> int:
    """The width that schedules use, for an architecture with valid options."""
    architecture = MODELS.get(model.architecture) if model.architecture in MODELS.names() else None
    if architecture is None or check_options(architecture, model.architecture_options, key="")[1]:
        return model.hidden_size
    width: int = architecture.outline(model).width
    return width


def _rate(config: Config, given: Given) -> Iterator[Problem]:
    found = _rates(config)
    if found is None:
        return
    key, options, schedule = "training.schedule_options", found.options, config.training.schedule
    lowest, highest = getattr(options, "min_lr", 0.0), getattr(options, "max_lr", None)
    reached = f"the highest rate of '{schedule}' with training.lr: {config.training.lr:g}"
    if lowest > found.peak:
        yield Problem(f"{key}.min_lr", f"{lowest:g} is above {found.peak:g}, {reached}")
    chosen = given.get("training")
    chosen = chosen.get("schedule_options") if isinstance(chosen, Mapping) else None
    is_default = not isinstance(chosen, Mapping) or "max_lr" not in chosen
    if is_default and highest is not None and found.peak > highest:
        message = f"its default, {highest:g}, cuts off {found.peak:g}, {reached}; set it"
        yield Problem(f"{key}.max_lr", message)


def _has_validation(config: Config) -> bool:
    return config.data.dev is not None or config.data.generator != "none"


def _without_validation(config: Config) -> Iterator[Problem]:
    kept = config.training.keep_best
    if not _has_validation(config) and kept not in (0, TrainingConfig().keep_best):
        yield Problem("training.keep_best", "needs validation data in data.dev")


def _idle_validation(config: Config) -> Iterator[Problem]:
    """Keys of validation, which configurations without validation text often keep."""
    if _has_validation(config):
        return
    for section, name, usual in (
        ("training", "validate_every", None),
        ("evaluation", "max_sentences", None),
        ("evaluation", "samples", EvaluationConfig().samples),
    ):
        if getattr(getattr(config, section), name) not in (0, usual):
            yield Problem(f"{section}.{name}", "has no effect without validation data in data.dev")


def _start(config: Config) -> Iterator[Problem]:
    start = config.training.init_from
    if start is not None and os.path.realpath(start) == os.path.realpath(config.run_dir):
        yield Problem(
            "training.init_from", "is run_dir itself; a run resumes automatically, and a new run needs another run_dir"
        )


def _without_use(config: Config, given: Given) -> Iterator[Problem]:
    """Keys that have no effect with the task."""
    task = TASKS.known(config.task)
    if task is None:
        return
    for key, instead in task.unused_in(config.task_options).items():
        section, _, name = key.partition(".")
        inside = given.get(section)
        if (isinstance(inside, Mapping) and name in inside) if name else bool(inside):
            yield Problem(key, f"has no effect with the task '{config.task}'{instead and f': {instead}'}")


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


def _idle_unit(config: Config, given: Given) -> Iterator[Problem]:
    """A unit that no layer has. No error, because --set cannot take the keys out of a file."""
    inside, why = given.get("model"), without_unit(config.model)
    if why is None or not isinstance(inside, Mapping):
        return
    if "cell" in inside:
        yield Problem("model.cell", f"'{config.model.cell}' has no effect: {why}")
    if inside.get("cell_options"):
        yield Problem("model.cell_options", f"has no effect: {why}")


def _unread(config: Config, given: Given) -> Iterator[Problem]:
    """Keys of the model with unusual values, which the architecture does not read."""
    model, inside = config.model, given.get("model")
    for name in getattr(MODELS.known(model.architecture), "unread", ()):
        if isinstance(inside, Mapping) and inside.get(name, usual := getattr(ModelConfig(), name)) != usual:
            yield Problem(f"model.{name}", f"has no effect with '{model.architecture}'")


def _never_reached(config: Config) -> Iterator[Problem]:
    """Events that never happen because training ends before them."""
    training, end = config.training, config.training.max_steps
    if end is None:
        return
    where = f"beyond training.max_steps ({end})"
    consequences = {
        "validate_every": "only the last update is validated",
        "save_every": "only the last update is saved",
        "sample_every": "no text is ever sampled",
    }
    for name, consequence in consequences.items():
        idle = name == "validate_every" and not _has_validation(config)
        if not idle and (getattr(training, name) or 0) > end:
            yield Problem(f"training.{name}", f"{getattr(training, name)} is {where}: {consequence}")
    warmup = training.schedule_options.get("warmup_steps", 0) * training.schedule_options.get("replicas", 1)
    if warmup > end:
        message = f"the rate grows until update {warmup}, {where}: it never reaches its highest value"
        yield Problem("training.schedule_options.warmup_steps", message)


def _odd_rate(config: Config) -> Iterator[Problem]:
    training, found = config.training, _rates(config)
    highest = None if found is None else getattr(found.options, "max_lr", None)
    if found is not None and highest is not None and training.schedule != "cosine" and found.peak > highest:
        message = f"{highest:g} cuts off the highest rate of '{training.schedule}', {found.peak:g}"
        yield Problem("training.schedule_options.max_lr", message)
    if training.skip_norm is not None and training.clip_norm >= training.skip_norm:
        message = f"skips every update that training.clip_norm ({training.clip_norm:g}) would clip"
        yield Problem("training.skip_norm", message)
    patience = training.schedule_options.get("patience", 0)
    if training.patience is not None and patience >= training.patience:
        message = (
            f"{patience} is not below training.patience ({training.patience}): training ends before the rate shrinks"
        )
        yield Problem("training.schedule_options.patience", message)


def _equal_passes(config: Config) -> Iterator[Problem]:
    """R-Drop without dropout, as far as the options of architectures show."""
    model = config.model
    others = (value for key, value in model.architecture_options.items() if key.endswith("dropout"))
    if config.training.loss == "r_drop" and not any((model.dropout, model.recurrent_dropout, *others)):
        yield Problem("training.loss", "'r_drop' compares two passes with different dropout, but model.dropout is 0")


def _unused(config: Config) -> Iterator[Problem]:
    """Keys that the other keys make useless."""
    training, evaluation = config.training, config.evaluation
    if training.sample_every is None and training.sample_sentences != TrainingConfig().sample_sentences:
        yield Problem("training.sample_sentences", "has no effect without training.sample_every")
    if training.average_last == 1:
        yield Problem("training.average_last", "the mean of 1 checkpoint is that checkpoint")
    if _has_validation(config) and not evaluation.metrics and evaluation.max_sentences is not None:
        yield Problem("evaluation.max_sentences", "has no effect without evaluation.metrics: nothing is translated")
    if training.batch_tokens is not None and training.batch_tokens <= config.data.max_length:
        message = f"{training.batch_tokens} is not above data.max_length ({config.data.max_length}): "
        yield Problem("training.batch_tokens", f"{message}longer sentences are batches by themselves")


def _idle_tag(data: DataConfig) -> Iterator[Problem]:
    if data.monolingual is None and data.monolingual_tag != DataConfig().monolingual_tag:
        yield Problem("data.monolingual_tag", "has no effect without data.monolingual")


def _same_text(data: DataConfig) -> Iterator[Problem]:
    def prefixes(name: str) -> list[str]:
        value = getattr(data, name)
        return [value] if isinstance(value, str) else list(value or ())

    for name in ("dev", "test"):
        for prefix in prefixes(name):
            if prefix in (*prefixes("train"), *prefixes("monolingual")):
                yield Problem(f"data.{name}", f"'{prefix}' is also training text, so scores on it mean little")
