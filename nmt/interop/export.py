"""Model directories as they are written: whole or not at all; an exported folder, and whether one is whole.

What nmt-export and, for such folders, nmt-check do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from nmt.config import Config, write_config
from nmt.data import Tokenizer
from nmt.data.saved_tokenizer import save_tokenizer
from nmt.errors import CheckpointError, ConfigError, NmtError
from nmt.files import naming, new_directory, open_regular, read_bounded, read_file, sums_text, unused_name, write_new
from nmt.interop import run_layout
from nmt.interop.exported import (
    FORMAT_KEY,
    FORMATS,
    TOKENIZER_SUMS,
    VERSION,
    VERSION_KEY,
    check_trainable,
    decoding_files,
    format_name,
    packed,
)
from nmt.interop.facts import MAKER
from nmt.interop.model_dir import LoadedModel, find_model, read_model
from nmt.interop.run_layout import TrainingFacts, write_facts
from nmt.interop.weights_file import read_metadata, write_weights
from nmt.models.base import Seq2Seq
from nmt.models.inference import known_matrices
from nmt.registry import CARDS

_UNFINISHED = ".writing-"
"""The beginning of a directory's name until it is complete."""
_LARGEST: Final = 1 << 30
"""Bytes of a file that decoding settings name, such as a shortlist."""


class Exported(NamedTuple):
    """What was written."""

    model: LoadedModel
    """As it was read."""
    weights: int
    """Bytes of the weights."""
    total: int
    """Bytes of the folder or file."""
    notes: Sequence[str] = ()
    """Settings of the search that are not in it."""


def export_model(
    model: str | Path,
    output: Path,
    *,
    stored: str = "fp32",
    checkpoint: str | int = "best",
    plugins: Sequence[str] = (),
    overwrite: bool = False,
    note: str = "",
) -> Exported:
    """Write the model in `model` to the folder `output`, which appears when it is complete.

    Args:
        model: an argument of `load_model`, with `checkpoint` and `plugins`.
        stored: one of FORMATS, the format of the stored weights.
        overwrite: replace an existing exported folder.
        note: text in Markdown for the card, such as the licence and what the model is for.

    Raises:
        CheckpointError: `output` exists, or the model cannot be read or has been rounded by an export.
        ConfigError: bf16 cannot hold a weight, or decoding names a language model or a missing file.
    """
    replaces = is_replaced(
        output,
        model=Path(model),
        overwrite=overwrite,
        is_one=lambda folder: format_name(folder) is not None,
        what="exported folders",
    )
    loaded = read_for_export(model, checkpoint=checkpoint, plugins=plugins)
    if loaded.config.decoding.language_model is not None:
        raise ConfigError(
            f"decoding.language_model: {loaded.config.decoding.language_model} is set, but exported folders have no "
            f"language model. Allowed in config.yaml: null; give it with --language-model when you use the folder."
        )
    form = FORMATS[stored]
    if form.others == torch.bfloat16:
        check_range(loaded.model)
    weights = packed(loaded.model, form)
    with whole_directory(output, replace=replaces) as folder:
        config = _own_config(loaded.config, folder, precision=form.precision)
        # what is known of them, such as the checkpoints that were averaged
        known = {k: value for k, value in read_metadata(loaded.path / run_layout.WEIGHTS).items() if k != MAKER}
        metadata = {**known, VERSION_KEY: VERSION, FORMAT_KEY: stored}
        size = _write_parts(folder, output, weights, config=config, tokenizer=loaded.tokenizer, metadata=metadata)
        if loaded.longest_source.is_known:
            write_facts(folder, TrainingFacts(loaded.longest_source.tokens, loaded.several))
        describe, total = CARDS.get("markdown"), _size(folder)
        card = describe(loaded, name=output.name, stored=stored, weights=size, total=total, note=note)
        write_new(folder / run_layout.CARD, card.encode("utf-8"))
        write_new(folder / run_layout.SUMS, sums_text(_sums(folder)))
        total = _size(folder)
    return Exported(loaded, size, total)


def read_for_export(model: str | Path, *, checkpoint: str | int, plugins: Sequence[str]) -> LoadedModel:
    """The model, on the CPU; CheckpointError where an export has rounded it."""
    check_trainable(find_model(model, checkpoint=checkpoint))
    return read_model(model, plugins=plugins, device=torch.device("cpu"), checkpoint=checkpoint)


def check_range(model: Seq2Seq) -> None:
    """Raise ConfigError if a matrix holds a value that bf16 cannot."""
    for name, weight in known_matrices(model):
        if not bool(weight.to(torch.bfloat16).isfinite().all()):
            largest = float(weight.detach().abs().max())
            raise ConfigError(f"precision: {name} holds {largest:.4g}, too large for bf16; choose fp32 or int8")


def _own_config(config: Config, folder: Path, *, precision: str) -> Config:
    """The configuration for the folder, and the files that decoding names, by their keys; they are copied to the
    folder."""
    changes: dict[str, Any] = {"precision": precision}
    for key, name in decoding_files(config.decoding).items():
        own = key + Path(name).suffix
        try:
            with open_regular(Path(name)) as stream:
                content = read_bounded(stream, largest=_LARGEST)
        except OSError as error:
            raise ConfigError(f"decoding.{key}: {name}: {error.strerror}; the folder would lack it") from error
        write_new(folder / own, content)
        changes[key] = own
    return dataclasses.replace(config, decoding=dataclasses.replace(config.decoding, **changes))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files(folder))


def _sums(folder: Path) -> dict[str, str]:
    """The checksums of all important files; the tokenizer has its own list."""
    found = {}
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if name != run_layout.CARD and (path.parent == folder or name == TOKENIZER_SUMS):
            found[name] = hashlib.sha256(read_file(path)).hexdigest()
    return found


def check_output(output: Path, *, model: Path | None = None) -> None:
    """Raise CheckpointError unless `output` is free: not there, or an empty directory, and no part of `model`."""
    run_layout.check_no_part(output, models=() if model is None else (model,))
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise CheckpointError(f"{output}: exists and is not a directory; choose another name")
    if output.is_dir() and any(output.iterdir()):
        raise CheckpointError(f"{output}: this directory is not empty; choose another name or move it away")


def is_converted(folder: Path) -> bool:
    """Whether it is a model directory that nmt-convert has written."""
    try:
        return "converted" in read_metadata(folder / run_layout.WEIGHTS)
    except NmtError:
        return False


def is_replaced(output: Path, *, model: Path, overwrite: bool, is_one: Callable[[Path], bool], what: str) -> bool:
    """Whether an existing folder will be replaced; CheckpointError if `output` is anything else that exists.

    `overwrite` replaces folders for which `is_one` is true; `what` describes them.
    """
    run_layout.check_no_part(output, models=(model,))
    is_full = not output.is_symlink() and output.is_dir() and any(output.iterdir())
    if is_full and not overwrite and is_one(output):
        raise CheckpointError(f"{output}: exists already; choose another name or replace it with --overwrite")
    if not is_full or not overwrite:
        check_output(output)
        return False
    if not is_one(output):
        raise CheckpointError(f"{output}: --overwrite replaces only {what}, and this is not one; move it away")
    return True


@contextlib.contextmanager
def whole_directory(output: Path, *, replace: bool = False) -> Iterator[Path]:
    """A directory to fill, which becomes `output` when the block ends without an error.

    With `replace` it replaces an existing directory, which is then deleted. An OSError of writing names `output`.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with naming(output, unfinished=_UNFINISHED), new_directory(output, prefix=_UNFINISHED) as temporary:
        yield temporary
        before = unused_name(output, prefix=".replaced-") if replace and output.is_dir() else None
        if before is not None:
            output.rename(before)
        temporary.rename(output)  # takes the place of an empty directory
        if before is not None:
            shutil.rmtree(before)


def write_model(
    output: Path,
    weights: Mapping[str, Tensor],
    *,
    config: Config,
    tokenizer: Tokenizer,
    metadata: Mapping[str, str],
    more: Mapping[str, bytes] = MappingProxyType({}),
    replace: bool = False,
) -> None:
    """Write the directory that `load_model` takes; `metadata` is stored with the weights, `more` are files beside them.

    Raises:
        CheckpointError: `output` exists and is not an empty directory, and `replace` is false.
    """
    if not replace:
        check_output(output)
    with whole_directory(output, replace=replace) as folder:
        _write_parts(folder, output, weights, config=config, tokenizer=tokenizer, metadata=metadata)
        for name, content in more.items():
            write_new(folder / name, content)


def _write_parts(
    folder: Path,
    output: Path,
    weights: Mapping[str, Tensor],
    *,
    config: Config,
    tokenizer: Tokenizer,
    metadata: Mapping[str, str],
) -> int:
    """Configuration, tokenizer and weights in the `folder` that becomes `output`; returns the bytes of the weights."""
    write_config(folder / run_layout.CONFIG, config, name=output / run_layout.CONFIG)
    (folder / run_layout.TOKENIZER).mkdir()
    save_tokenizer(folder / run_layout.TOKENIZER, tokenizer, config, name=output / run_layout.TOKENIZER)
    return len(write_weights(folder / run_layout.WEIGHTS, weights, metadata={**metadata, "format": "pt"}))
