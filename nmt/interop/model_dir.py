"""Loading trained models, one or an ensemble: from a run, a checkpoint, or the output of nmt-average or nmt-export."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from nmt.config import Config, load_saved
from nmt.data import Tokenizer
from nmt.data.saved_tokenizer import load_tokenizer
from nmt.data.sentences import Lines
from nmt.errors import CheckpointError, ConfigError, SettingError, missing, printable, refused
from nmt.files import is_file, is_folder, is_there
from nmt.interop import exported, run_layout
from nmt.interop.device import choose_device
from nmt.interop.engine.opened import TAKEN_BY, is_engine_file
from nmt.interop.exported import FORMATS, Format, layout, on_device, unpacked, value_problems
from nmt.interop.run_layout import LongestSource, read_facts
from nmt.interop.weights_file import LONGEST_NAME, check_finite, first_few, parse_weights, read_shapes, read_weights
from nmt.kernel_check import Purpose, choose_kernels, use_verified_kernels
from nmt.light.pretrained import or_named
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.registry import CONVERTERS, MODELS

TRANSLATION = "translation"
"""The task of most models."""
_MOST_DIGITS = 30
"""Digits of a step; Python reads some thousands."""


class LoadedModel(NamedTuple):
    """A model ready to use, in evaluation mode, with all that belongs to it."""

    model: Seq2Seq
    tokenizer: Tokenizer
    config: Config
    path: Path
    """The directory its weights came from."""
    longest_source: LongestSource
    """Of its training."""
    several: float | None = None
    """The share of its training sources that have several sentences, where it is known."""

    @property
    def lines(self) -> Lines:
        """What decides how lines are split into sentences and what these have of those before."""
        data, longest = self.config.data, self.longest_source.tokens
        return Lines(data.source_language, data.target_language, self.several, longest, data.context)


def load_model(
    path: str | Path,
    *,
    plugins: Sequence[str] = (),
    device: str | torch.device = "cpu",
    checkpoint: str | int = "best",
    purpose: Purpose = "search",
    task: str | Sequence[str] = TRANSLATION,
) -> LoadedModel:
    """Load the model in `path`, and choose the kernels for it.

    Args:
        path: run directory, checkpoint directory (RUN/checkpoints/step-N), output of nmt-average or nmt-export.
        plugins: Python files to import first. Plugins named in the saved configuration are not imported unless they are
            given here: they may come from someone else.
        device: `cpu`, `cuda` or `auto`, or a torch device.
        checkpoint: for a run directory: `best` (by validation, else the newest), `last`, or a step.
        purpose: the use of the model, which determines the operations that must be right on a GPU.
        task: the task, or several allowed tasks, of the model.

    Raises:
        CheckpointError: something is missing, damaged or does not fit; one line names the file.
        ConfigError: the saved configuration cannot be used, for example without a plugin.
    """
    return load_models([path], plugins=plugins, device=device, checkpoint=checkpoint, purpose=purpose, task=task)[0]


def load_models(
    paths: Sequence[str | Path],
    *,
    plugins: Sequence[str] = (),
    device: str | torch.device = "cpu",
    checkpoint: str | int = "best",
    purpose: Purpose = "search",
    task: str | Sequence[str] = TRANSLATION,
) -> list[LoadedModel]:
    """Load the model in each of `paths`, at least one; the same model may occur more than once.

    The arguments are those of `load_model`; `checkpoint` is chosen from each run. Kernels are chosen by the
    configuration of the first model.

    Raises:
        CheckpointError: a model cannot be loaded, or its vocabularies differ from the first model's.
        ConfigError: a saved configuration cannot be used.
    """
    paths = [_converted(Path(path)) for path in paths]
    for path in paths:  # before the first is loaded, which takes time
        find_model(path, checkpoint=checkpoint)
    place, models = choose_device(device), list[LoadedModel]()
    for path in paths:
        models.append(read_model(path, plugins=plugins, device=place, checkpoint=checkpoint, task=task))
        if difference := tokenizer_difference(models[0].tokenizer, models[-1].tokenizer):
            raise CheckpointError(f"{models[0].path} and {models[-1].path} cannot be one ensemble: {difference}")
    kernels = models[0].config.kernels
    # Weights trained by kernels of a GPU are good on any device.
    choose_kernels("auto" if kernels == "triton" and place.type == "cpu" else kernels, device=place)
    use_verified_kernels([loaded.model for loaded in models], device=place, purpose=purpose)
    return models


def read_model(
    path: str | Path,
    *,
    plugins: Sequence[str],
    device: torch.device,
    checkpoint: str | int = "best",
    task: str | Sequence[str] = TRANSLATION,
) -> LoadedModel:
    """`load_model` without a choice of kernels."""
    directory = find_model(path, checkpoint=checkpoint)
    name = exported.format_name(directory)
    form = None if name is None else FORMATS[name]
    sums = {} if form is None else exported.read_checksums(directory)
    for other, digest in sums.items():
        if other != run_layout.WEIGHTS:  # which are checked when they are read
            exported.check_file(directory / other, digest)
    config = load_saved(config_file(directory), plugins)
    tasks = [task] if isinstance(task, str) else task
    if config.task not in tasks:
        wanted = " or ".join(tasks)
        raise CheckpointError(f"{path}: is a model of the task {config.task}, but a model of {wanted} is needed here")
    files = exported.decoding_files(config.decoding)
    inside = {key: directory / Path(file).name for key, file in files.items()}
    # The files named in decoding are those of the folder, of an export always.
    own: dict[str, Any] = {key: str(path) for key, path in inside.items() if form is not None or is_file(path)}
    config = dataclasses.replace(config, decoding=dataclasses.replace(config.decoding, **own))
    tokenizer = load_tokenizer(directory, config)
    file = directory / run_layout.WEIGHTS
    # Compared before anything is allocated: a configuration, or a header, can ask for any amount of memory.
    shapes = read_shapes(file)
    plan = planned_model(config, tokenizer, most_layers=len(shapes), trusted=bool(plugins))
    stored = None
    if form is None:
        check_weights(plan, shapes, file=file)
        weights: Mapping[str, Tensor] = read_weights(file)
        check_weights(plan, weights, file=file)
    else:
        check_stored(plan, shapes, form, file=file)
        tensors = parse_weights(file, exported.check_file(file, sums[run_layout.WEIGHTS]))
        check_stored(plan, tensors, form, file=file)
        weights, stored = unpacked(tensors, plan, form)
    model = build_model(config.model, *sizes_of(tokenizer))
    model.load_state_dict(weights)
    check_finite(model.state_dict(), file=file)
    model = model.to(device).eval()
    model.stored = None if stored is None else on_device(stored, device)
    facts = read_facts(directory)
    return LoadedModel(model, tokenizer, config, directory, facts.longest_source(config), facts.several)


def tokenizer_difference(first: Tokenizer, second: Tokenizer) -> str | None:
    """What keeps models with these tokenizers from having the same inputs and outputs, in words; None if nothing."""
    if first.fingerprint() == second.fingerprint():
        return None
    sides = {
        "target": [tokenizer.target_tokens(range(tokenizer.target_size)) for tokenizer in (first, second)],
        "source": [tokenizer.source_tokens(range(tokenizer.source_size)) for tokenizer in (first, second)],
    }
    for side, (ours, theirs) in sides.items():
        if len(ours) != len(theirs):
            return f"their {side} vocabularies have {len(ours)} and {len(theirs)} entries"
        for token, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            if our != their:
                return f"their {side} vocabularies differ: id {token} is {our!r} and {their!r}"
    return "their vocabularies are equal, but they split text into tokens differently"


def names_of(models: Sequence[LoadedModel]) -> str:
    """The directories of their weights, for a message."""
    paths = ", ".join(str(model.path) for model in models)
    return paths if len(models) == 1 else f"an ensemble of {len(models)} models ({paths})"


def find_model(path: str | Path, *, checkpoint: str | int = "best") -> Path:
    """The directory with the weights that `path` and `checkpoint` mean; see `load_model`."""
    path = _converted(Path(path))
    if not is_folder(path):
        if is_engine_file(path):
            raise CheckpointError(f"{path}: is one file for the engine, accepted only by {TAKEN_BY}; give its run")
        reason = "is not a directory" if path.exists() else "no such directory"
        named = "" if path.exists() else or_named()
        raise CheckpointError(f"{path}: {reason}; give a run, a checkpoint in it, or an exported model{named}")
    if is_file(path / run_layout.WEIGHTS):
        if checkpoint != "best":
            raise ConfigError(f"{path}: is a single model; a checkpoint ('{checkpoint}') can be chosen only from a run")
        return path
    exported.check_no_graphs(path)
    if not is_folder(run_layout.checkpoints_dir(path)):
        wanted = f"{run_layout.CHECKPOINTS}/ nor {run_layout.WEIGHTS}"
        raise CheckpointError(f"{path}: not a model: it has neither {wanted}")
    steps = run_layout.checkpoint_steps(path)
    if not steps:
        raise CheckpointError(f"{path}: has no complete checkpoint yet")
    return run_layout.step_dir(path, _chosen_step(path, checkpoint, steps))


def _converted(path: Path) -> Path:
    """What stands in the place of a model of another system; any other path as it is."""
    if is_folder(path) and any(is_there(path / name) for name in (run_layout.CONFIG, run_layout.CHECKPOINTS)):
        return path
    for name in CONVERTERS.names() if path.exists() else ():
        if (found := CONVERTERS.get(name).converted(path)) is not None:
            return cast("Path", found)
    return path


def weights_of(path: str | Path) -> Path:
    """The file with the weights of `path`; if there is no model, a path that does not exist."""
    try:
        return find_model(path) / run_layout.WEIGHTS
    except CheckpointError:
        return Path(path) / run_layout.WEIGHTS


def _chosen_step(run: Path, checkpoint: str | int, steps: Sequence[int]) -> int:
    if checkpoint == "best":
        best = run_layout.best_step(run)
        return steps[-1] if best is None else best
    if checkpoint == "last":
        return steps[-1]
    if str(checkpoint).isdecimal() and len(str(checkpoint)) < _MOST_DIGITS:
        if int(checkpoint) not in steps:
            listed = ", ".join(str(step) for step in steps)
            raise CheckpointError(f"{run}: no checkpoint of step {checkpoint}; existing: {listed}")
        return int(checkpoint)
    raise SettingError(("checkpoint", refused("", checkpoint, f"best, last, or a step such as {steps[-1]}")))


def config_file(directory: Path) -> Path:
    """The configuration next to the weights, else that of the run around them."""
    own = directory / run_layout.CONFIG
    around = directory.parent.parent / run_layout.CONFIG
    if not is_there(own) and directory.parent.name == run_layout.CHECKPOINTS and is_there(around):
        return around
    if not is_there(own):
        raise CheckpointError(missing(own, "a model directory must have its configuration next to the weights"))
    return own


def planned_model(config: Config, tokenizer: Tokenizer, *, most_layers: int, trusted: bool) -> Seq2Seq:
    """The model on the meta device, which needs no memory.

    `trusted`: the user has given plugins, whose code may not support that device, so the model is built on the CPU.

    Raises:
        CheckpointError: such a model is impossible.
    """
    outline = MODELS.get(config.model.architecture).outline(config.model)
    layers = outline.encoder_layers + outline.decoder_layers
    if layers > most_layers:
        raise CheckpointError(f"model: {layers} layers in the configuration, but fewer in the weights")
    try:
        with torch.device("cpu" if trusted else "meta"):
            return build_model(config.model, *sizes_of(tokenizer))
    except (RuntimeError, TypeError, OverflowError) as error:
        if trusted:
            raise
        raise CheckpointError("model: sizes in the configuration are too large for a model") from error


def sizes_of(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Entries of all vocabularies that a model is built for."""
    return tokenizer.source_size, tokenizer.target_size, *tokenizer.further_sizes


def check_weights(model: Seq2Seq, weights: Mapping[str, Tensor], *, file: Path) -> None:
    """CheckpointError unless every parameter is in `weights`, in its shape, and nothing else."""
    _check(weight_differences(model.state_dict(), weights), file=file)


def check_stored(model: Seq2Seq, tensors: Mapping[str, Tensor], form: Format, *, file: Path) -> None:
    """CheckpointError unless `tensors` are what `form` stores of such a model: names, shapes, types and values.

    Of tensors on the meta device, which have none, values are not looked at.
    """
    expected = layout(model, form)
    differing = weight_differences(expected, tensors, types=True)
    if not differing and not any(tensor.is_meta for tensor in tensors.values()):
        differing = value_problems(tensors)
    _check(differing, file=file)


def _check(differing: Sequence[str], *, file: Path) -> None:
    if differing:
        raise CheckpointError(f"{file}: not the weights of this configuration and tokenizer: {first_few(differing)}")


def weight_differences(
    expected: Mapping[str, Tensor], found: Mapping[str, Tensor], *, types: bool = False
) -> list[str]:
    """Each parameter that is missing, unknown, of another shape, or no real number; with `types` of another type."""
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    for name in sorted(found.keys() - expected.keys()):
        # Somebody else's file can call a tensor anything, line ends and control sequences included.
        short = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
        wrong.append(f"{printable(short)} is unknown")
    for name in sorted(expected.keys() & found.keys()):
        if expected[name].shape != found[name].shape:
            wrong.append(f"{name} is {list(found[name].shape)} but must be {list(expected[name].shape)}")
        elif not found[name].is_floating_point() and expected[name].is_floating_point():
            wrong.append(f"{name} holds {found[name].dtype}")
        elif types and found[name].dtype != expected[name].dtype:
            is_, must = (str(tensors[name].dtype).removeprefix("torch.") for tensors in (found, expected))
            wrong.append(f"{name} is {is_} but must be {must}")
    return wrong
