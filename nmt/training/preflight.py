"""Before training: what would prevent it (an end, files, packages, memory)."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from nmt.config import component_options, load_saved
from nmt.config.located import named_paths
from nmt.config.options import check_options, choices
from nmt.config.problems import Problem
from nmt.config.schema import Config, TrainingConfig
from nmt.data.prepare import planned_sizes
from nmt.errors import CheckpointError, ConfigError, DataError, NmtError, missing
from nmt.evaluation import build_metrics
from nmt.files import memory
from nmt.interop import run_layout
from nmt.interop.model_dir import TRANSLATION, find_model
from nmt.kernel_check import choose_kernels
from nmt.models import build_model, freeze
from nmt.registry import (
    CELLS,
    GENERATORS,
    INITIALIZERS,
    KEEPERS,
    METRICS,
    MODELS,
    OPTIMIZERS,
    STARTS,
    TASKS,
    TOKENIZERS,
    Registry,
)
from nmt.search.shortlist import read_shortlist
from nmt.training.logs import NO_TENSORBOARD, TENSORBOARD
from nmt.training.run import build_limits
from nmt.training.state import Budget
from nmt.training.task import task_of
from nmt.training.update import choose_precision

LAYERS = 10
"""Layers of each side that are counted; a model that is too large with so many is so with more."""
SMALL = 1 << 24
"""A model with fewer weights, roughly, fits anywhere and is not counted."""
BYTES = 4
"""Bytes of a weight, which is stored in fp32 whatever the computation uses."""


def kept_by_optimizer(training: TrainingConfig) -> tuple[int, bool]:
    """Numbers that the optimizer keeps for each weight, and whether an average of the weights is kept in addition.

    Of a plugin's optimizer that does not say how many, 2, as of Adam.
    """
    member = OPTIMIZERS.get(training.optimizer)
    counted = getattr(member, "moments", None)
    moments = 2 if counted is None else int(counted(component_options(member, training.optimizer_options)))
    return moments, training.ema_decay > 0 or training.average_after is not None


def too_large(config: Config, sizes: tuple[int, int], *, device: torch.device, training: bool = True) -> str | None:
    """The problem of a model that cannot fit, in words; None if it fits, or if a plugin builds it.

    `sizes` are the vocabulary sizes; `training` also counts gradients, the optimizer's state and the moving average.
    Activations are not counted, so nothing is refused that could run.
    """
    model = config.model
    outline = MODELS.get(model.architecture).outline(model)
    width = max(outline.width, model.encoder_hidden_size or 0, model.embedding_size)
    roughly = width * (width + sum(sizes)) * (outline.encoder_layers + outline.decoder_layers)
    if config.plugins or roughly < SMALL:
        return None
    layers = {name: min(getattr(model, name), LAYERS) for name in ("encoder_layers", "decoder_layers")}
    with torch.device("meta"):
        parameters = build_model(dataclasses.replace(model, **layers), *sizes).parameters()
    weights = sum(weight.numel() for weight in parameters)
    copies = 2 + sum(kept_by_optimizer(config.training)) if training else 1
    there = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else memory()
    needed = BYTES * copies * weights
    if needed <= there:
        return None
    what = "weights, gradients and the optimizer's state" if training else "weights"
    where = "this GPU" if device.type == "cuda" else "this machine"
    more = " or more" if layers != {name: getattr(model, name) for name in layers} else ""
    return (
        f"{weights:,} parameters{more} need {needed / 1e9:,.0f} GB ({what}); {where} has {there / 1e9:,.0f} GB. "
        "Smaller: hidden_size, embedding_size, layers."
    )


SMALLEST = (4, 4)
"""Vocabularies whose sizes are not known yet."""
_WRITTEN = ("run_dir", "data.cache_dir")
"""Keys that name what training writes."""
_MOVES_HERE = "the current directory lies in this run, which a new run replaces; start nmt-train somewhere else"


def is_begun(config: Config) -> bool:
    """Whether the run has a checkpoint, so that it resumes, or is finished, instead of starting."""
    run = Path(config.run_dir)
    return run_layout.checkpoints_dir(run).is_dir() and bool(run_layout.checkpoint_steps(run))


def as_begun(config: Config, *, warn: Callable[[str], None]) -> Config:
    """`config` with the normalisation of the run that resumes, if it names none: before 0.3.0 this meant nmt_nfkc."""
    options, key = config.data.tokenizer_options, "normalization"
    saved = Path(config.run_dir) / run_layout.CONFIG
    if config.data.tokenizer != "sentencepiece" or options[key] is not None or not saved.is_file():
        return config
    try:
        began = load_saved(saved, config.plugins).data.tokenizer_options.get(key)
    except ConfigError:  # which resuming reports
        return config
    if began != "nmt_nfkc":
        return config
    warn(f"{config.run_dir}: resumes with data.tokenizer_options.{key}: {began}, with which it began")
    return replace(config, data=replace(config.data, tokenizer_options={**options, key: began}))


def cannot_begin(config: Config, *, device: torch.device, budget: Budget, dry: bool, resumes: bool) -> list[Problem]:
    """The problems that prevent training here, except missing files; with `dry` nothing is trained.

    `resumes`: the run that is there resumes.
    """
    problems = []
    for key, ask in _questions(config, device=device, budget=budget, resumes=resumes):
        try:
            ask()
        except NmtError as error:
            named, _, rest = str(error).partition(": ")
            found = Problem(named, rest) if f"{named}.".startswith(f"{key}.") else Problem(key, str(error))
            problems.append(found._replace(in_files=isinstance(error, DataError)))
    for key, path in ((key, Path(path)) for key, path in named_paths(config) if key in _WRITTEN):
        there = next(part for part in (path, *path.absolute().parents) if part.exists())
        if not there.is_dir():
            problems.append(Problem(key, f"{there}: is a file, not a directory"))
    if not config.data.train and config.data.generator == "none":
        problems.append(Problem("data.train", "no training text; give a prefix or a list of prefixes"))
    if config.training.tensorboard and find_spec(TENSORBOARD) is None:  # importing it would take seconds
        problems.append(Problem("training.tensorboard", NO_TENSORBOARD))
    if _is_known(config):
        try:
            sizes = planned_sizes(config)
        except NmtError:  # a file that is missing or no vocabulary
            sizes = None
        if sizes is None or (config.model.tie_embeddings == "all" and sizes[0] != sizes[1]):
            sizes = SMALLEST
        message = too_large(config, sizes, device=device, training=not dry)
        problems += [] if message is None else [Problem("model", message)]
    return problems


def without_files(config: Config, *, texts: bool = True, tokenizer: bool = True) -> list[Problem]:
    """A problem for each file that the configuration names, that training reads and that is not there.

    A dry run does without `texts`, and a run that resumes also without files of the `tokenizer`.
    """
    found: list[tuple[str, str]] = []
    if texts and config.task in TASKS.names():
        found += task_of(config).missing_files()
    kind, given = config.data.tokenizer, config.data.tokenizer_options
    if tokenizer and kind in TOKENIZERS.names():
        options, _ = check_options(TOKENIZERS.get(kind), given, key="")
        for path in TOKENIZERS.get(kind).inputs([], [], options=options) if options is not None else ():
            if not path.is_file():
                names = [name for name, value in given.items() if value == str(path)]
                found.append((".".join(["data.tokenizer_options", *names[:1]]), missing(path)))
    for key in ("shortlist", "glossary"):
        path = getattr(config.decoding, key)
        if path is not None and not Path(path).is_file():
            found.append((f"decoding.{key}", missing(path)))
    if config.decoding.language_model is not None:
        try:
            find_model(config.decoding.language_model)
        except CheckpointError as error:
            found.append(("decoding.language_model", str(error)))
    return [Problem(key, message, in_files=True) for key, message in found]


def in_replaced_run(config: Config) -> list[Problem]:
    """A problem for each file that training reads and that lies in an existing run, which a new run moves aside.

    The current directory must not lie there, either: `.` would then be the directory that was moved.
    """
    run = Path(os.path.realpath(config.run_dir))
    if not run.is_dir():
        return []
    here = Path.cwd()
    problems = [Problem("run_dir", f"{config.run_dir}: {_MOVES_HERE}")] if run in (here, *here.parents) else []
    message = "lies in run_dir, which a new run replaces; choose another run_dir, or copy it elsewhere"
    return problems + [
        Problem(key, f"{path}: {message}")
        for key, path in named_paths(config)
        if key not in _WRITTEN and run in Path(os.path.realpath(path)).parents
    ]


def _questions(
    config: Config, *, device: torch.device, budget: Budget, resumes: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    """What raises the error that training would, each with the key that it concerns."""
    yield "training", lambda: build_limits(config, budget=budget)
    yield "training.precision", lambda: choose_precision(config.training.precision, device=device)
    if config.kernels == "triton" and device.type == "cpu":
        yield "kernels", lambda: choose_kernels(config.kernels, device=device)
    if all(choice.name in METRICS.names() for choice in choices(config.evaluation.metrics)):
        yield "evaluation.metrics", lambda: build_metrics(config.evaluation, language=config.data.target_language)
    if (generator := GENERATORS.known(config.data.generator)) is not None:
        languages = config.data.source_language, config.data.target_language
        yield "data.source_language", lambda: generator.check_languages(*languages)
    if (parts := config.training.freeze) and config.task == TRANSLATION and _is_known(config):

        def known() -> None:
            with torch.device("meta"):
                freeze(build_model(config.model, *SMALLEST), parts)

        yield "training.freeze", known
    shortlist, glossary = config.decoding.shortlist, config.decoding.glossary
    if config.training.init_from is not None and not resumes:
        yield "training.init_from", lambda: STARTS.get("model")(config)
    if shortlist is not None and Path(shortlist).is_file():  # see `without_files` for missing ones
        yield "decoding.shortlist", lambda: read_shortlist(shortlist)
    if glossary is not None and Path(glossary).is_file():
        yield "decoding.glossary", lambda: KEEPERS.get("attention").check_glossary(glossary)


def _is_known(config: Config) -> bool:
    """Whether the model can be built; its problems are reported elsewhere."""
    model, units = config.model, [config.model.unit_of("encoder"), config.model.unit_of("decoder")]
    used: list[tuple[Registry[Any], str, Mapping[str, Any]]] = [
        (MODELS, model.architecture, model.architecture_options),
        (INITIALIZERS, model.initializer, model.initializer_options),
        (TOKENIZERS, config.data.tokenizer, config.data.tokenizer_options),
        (OPTIMIZERS, config.training.optimizer, config.training.optimizer_options),
        *((CELLS, unit.name, unit.options) for unit in units),
    ]
    for registry, name, options in used:
        if name not in registry.names() or check_options(registry.get(name), options, key="")[1]:
            return False
    return not MODELS.get(model.architecture).check(model)
