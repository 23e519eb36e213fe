"""Models of the original Zero system as model directories, and back as arrays in its names."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import ValidationError

from nmt.config import Config
from nmt.config.load import validate
from nmt.config.problems import format_problems, type_problems
from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
from nmt.errors import CheckpointError, ConfigError, DataError, missing
from nmt.files import create, unused_name, write_new
from nmt.interop import run_layout
from nmt.interop.export import is_converted, is_replaced, write_model
from nmt.interop.exported import check_trainable
from nmt.interop.model_dir import LoadedModel, find_model, load_model, planned_model
from nmt.interop.run_layout import check_no_part
from nmt.interop.weights_file import read_metadata
from nmt.models.base import Seq2Seq
from nmt.zero import settings, weights
from nmt.zero.checkpoint import CONFIG, Checkpoint, read_checkpoint, read_vocabulary, scope_of, vocabulary_text
from nmt.zero.settings import PARAM_JSON, HyperParameters, read_hyper_parameters

_SCOPE = "zero_scope"
"""Metadata beside the weights: the name before all variables."""
_STRUCTURE = ("model_name", "cell", "hidden_size", "embed_size")
"""Hyper-parameters that the variables do not determine; Zero's defaults are used."""


class Converted(NamedTuple):
    """The result of converting a checkpoint."""

    model: Seq2Seq
    config: Config
    notes: list[str]
    """what a user should know, one line each"""


class Exported(NamedTuple):
    """What was written for Zero."""

    files: list[Path]
    notes: list[str]
    """what a user should know, one line each"""


def from_zero(
    checkpoint: str | Path,
    output: Path,
    *,
    source_vocab: Path,
    target_vocab: Path,
    hparams: Sequence[str] = (),
    averages: bool = False,
    overwrite: bool = False,
) -> Converted:
    """Write the model in `checkpoint` as model directory `output`.

    Args:
        checkpoint: as for `read_checkpoint`; `averages` too.
        source_vocab: Zero's file for the source side, `target_vocab` for the target side.
        hparams: as for `read_hyper_parameters`.
        overwrite: replace an existing model directory that was converted.

    Raises:
        CheckpointError, DataError, ConfigError: a file that cannot be used, things that do not fit together, or a model
            without a counterpart in nmt; one line, or a line for each mistake.
    """
    replaces = is_replaced(
        output, model=Path(checkpoint), overwrite=overwrite, is_one=is_converted, what="converted models"
    )
    found = read_checkpoint(checkpoint, averages=averages)
    hyper = read_hyper_parameters(hparams, beside=found.path.parent, saved=found.hyper_parameters)
    if not hyper.origins:
        where = found.path.parent / PARAM_JSON
        raise ConfigError(missing(where, "name the hyper-parameters with --hparams FILE or key=value"))
    complete = hyper.complete
    settings.check_computable(complete)
    tokenizer, notes = _tokenizer(found, source_vocab, target_vocab, folder=output / run_layout.TOKENIZER)
    # What is not given is read off the variables, which cannot be mistaken about it.
    shape = {key: complete[key] for key in _STRUCTURE} | hyper.given
    shape |= {"src_vocab_size": tokenizer.source_size, "tgt_vocab_size": tokenizer.target_size}
    shape["scope_name"] = scope_of(found.variables) or complete["scope_name"]
    config = _configuration(shape, complete, found, tokenizer, output=output)
    # Compared before anything is allocated: hyper-parameters can ask for any amount of memory.
    plan = planned_model(config, tokenizer, most_layers=len(found.variables), trusted=False)
    try:
        weights.check_fit(weights.named_variables(plan, shape["scope_name"]), found.variables)
    except DataError as error:
        raise DataError(f"{found.path}: {error} (hyper-parameters: {', '.join(hyper.origins)})") from error
    except TypeError as error:
        raise ConfigError(f"cell: {error}") from error
    model = weights.from_arrays(shape, found.variables, torch.float32)
    metadata = {
        "converted": f"Zero {found.path}{' (moving averages)' if averages else ''}",
        _SCOPE: shape["scope_name"],
    }
    write_model(output, model.state_dict(), config=config, tokenizer=tokenizer, metadata=metadata, replace=replaces)
    return Converted(model, config, [*notes, *_notes(hyper, found, averages=averages)])


def _tokenizer(found: Checkpoint, source: Path, target: Path, *, folder: Path) -> tuple[WhitespaceTokenizer, list[str]]:
    """The tokenizer of text that is already split, with Zero's ids; it will be saved in `folder`."""
    (source_vocabulary, notes), (target_vocabulary, more) = read_vocabulary(source), read_vocabulary(target)
    joint = any(name.endswith("/embedding") for name in found.variables)
    if joint and source_vocabulary.tokens != target_vocabulary.tokens:
        reason = "one table of embeddings is used for both languages (shared_source_target_embedding)"
        raise DataError(f"{target}: another vocabulary than {source}, but {reason}")
    options = WhitespaceOptions(
        source_vocab=str(folder / ("joint.vocab" if joint else "source.vocab")),
        target_vocab=None if joint else str(folder / "target.vocab"),
        joint=joint,
    )
    tokenizer = WhitespaceTokenizer(source_vocabulary, target_vocabulary, options=options)
    for path, size, tables in (
        (source, tokenizer.source_size, ("embedding", "src_embedding")),
        (target, tokenizer.target_size, ("embedding", "tgt_embedding")),
    ):
        for name, array in found.variables.items():
            if name.rpartition("/")[2] in tables and len(array) != size:
                raise DataError(f"{path}: {size} tokens with the 3 special ones, but {name} has {len(array)} rows")
    return tokenizer, notes if source == target else [*notes, *more]


def _configuration(
    shape: dict[str, Any], hyper: dict[str, Any], found: Checkpoint, tokenizer: WhitespaceTokenizer, *, output: Path
) -> Config:
    """All that the hyper-parameters say and that has a key here."""
    raw = settings.sections(hyper)
    origin = f"{found.path}: the configuration that its hyper-parameters mean"
    try:
        section = dataclasses.asdict(weights.model_config(shape, found.variables))
    except ValidationError as error:
        raise ConfigError(format_problems(origin, type_problems(error, prefix=("model",)))) from error
    raw["model"] = {**section, **raw["model"]}
    raw["data"] |= {"tokenizer": "whitespace", "tokenizer_options": dataclasses.asdict(tokenizer.options)}
    return validate({"run_dir": str(output), **raw}, origin=origin)


def _notes(hyper: HyperParameters, found: Checkpoint, *, averages: bool) -> list[str]:
    notes = []
    if hyper.unknown:
        notes.append(f"ignored, of another version of Zero: {', '.join(hyper.unknown)}")
    if rest := settings.left_out(hyper):
        notes.append(f"not converted (docs/from_zero.md explains why): {', '.join(rest)}")
    if found.has_averages and not averages and hyper.complete["ema_decay"] > 0:
        notes.append("these are the plain weights; --moving-averages uses their averages, with which Zero translates")
    return notes


def to_zero(
    model: str | Path,
    output: Path,
    *,
    checkpoint: str | int = "best",
    plugins: Sequence[str] = (),
    overwrite: bool = False,
) -> Exported:
    """Write the model in `model` for Zero: arrays in its names, and the two vocabularies.

    `output` is FILE.npz, with an array for each variable and `config`, the hyper-parameters as JSON text. Beside it
    FILE.src.vocab and FILE.tgt.vocab have a token a line. `overwrite` replaces files that this has written.

    Raises:
        ConfigError: the model's plugin is not among `plugins`, or, by its key, what Zero cannot compute.
        CheckpointError: a file is there already, or a token would be another one to Zero.
        DataError: the directory of `output` is missing.
        OSError: `output`, which it names, cannot be written.
    """
    if output.suffix != ".npz":
        raise ConfigError(f"{output}: the name must end in .npz")
    files = [output, output.with_suffix(".src.vocab"), output.with_suffix(".tgt.vocab")]
    for path in files:
        check_no_part(path, models=(model,))
        if (path.exists() or path.is_symlink()) and not overwrite:
            raise CheckpointError(f"{path}: exists already; choose another name or replace it with --overwrite")
    if overwrite and any(path.exists() or path.is_symlink() for path in files) and not _is_ours(files):
        problem = f"{', '.join(path.name for path in files)} are not all there and files of this command"
        raise CheckpointError(f"{output}: --overwrite replaces only what to-zero has written, but {problem}")
    if not output.parent.is_dir():
        raise DataError(f"{output}: there is no directory {output.parent}")
    check_trainable(find_model(model, checkpoint=checkpoint))
    loaded = load_model(model, checkpoint=checkpoint, plugins=plugins)
    scope = _scope(loaded)
    arrays, hyper = _exported(loaded, scope=scope)
    tokenizer = loaded.tokenizer
    sides = ((tokenizer.source_tokens, tokenizer.source_size), (tokenizer.target_tokens, tokenizer.target_size))
    vocabularies = [vocabulary_text(tokens(range(size)), where=loaded.path) for tokens, size in sides]
    with _appearing(files) as temporary:
        for path, text in zip(temporary[1:], vocabularies, strict=True):
            write_new(path, text.encode("utf-8"))
        with create(temporary[0]) as stream:
            np.savez(stream, **{CONFIG: np.array(json.dumps(hyper))}, **arrays)  # type: ignore[arg-type]
    notes = []
    if loaded.config.data.tokenizer != "whitespace":
        kind = loaded.config.data.tokenizer
        notes.append(
            f"these vocabularies are the pieces of a {kind} tokenizer: give Zero text that this tokenizer has split"
        )
    return Exported(files, notes)


def _is_ours(files: Sequence[Path]) -> bool:
    if not all(path.is_file() and not path.is_symlink() for path in files):
        return False
    try:
        with zipfile.ZipFile(files[0]) as arrays:
            return f"{CONFIG}.npy" in arrays.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _exported(loaded: LoadedModel, *, scope: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables and hyper-parameters, if they lead back to the same model."""
    section = loaded.config.model
    hyper = settings.hyper_parameters(loaded.config, scope=scope)
    settings.check_units(section)
    try:
        arrays = weights.to_arrays(loaded.model, scope=scope)
    except TypeError as error:  # a part that a plugin has registered
        raise ConfigError(f"Zero cannot compute this model: {error}") from error
    again = weights.model_config(hyper, arrays)
    settings.check_exportable(section, again)
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in arrays.items()}, hyper


def _scope(loaded: LoadedModel) -> str:
    """What the variables were called below when the model came from Zero, else what Zero's own configurations say."""
    metadata = read_metadata(loaded.path / run_layout.WEIGHTS)
    return metadata.get(_SCOPE, loaded.model.variable_scope)


@contextlib.contextmanager
def _appearing(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Temporary names for `files`, which get their own when the block ends without an error, the first one last.

    An OSError of the block, or of renaming, names the first one.
    """
    temporary = [unused_name(path) for path in files]
    try:
        yield temporary
        for part, path in reversed(list(zip(temporary, files, strict=True))):
            part.rename(path)
    except BaseException as error:
        for part in temporary:
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(files[0])
        raise
