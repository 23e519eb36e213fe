"""Exporting a model as one small folder that every command takes: what nmt-export does."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from nmt.config import Config, write_config
from nmt.data import save_tokenizer
from nmt.errors import ConfigError
from nmt.files import open_regular, read_bounded, read_file, sums_text, write_new
from nmt.interop import run_layout
from nmt.interop.exported import (
    FORMAT_KEY,
    TOKENIZER_SUMS,
    VERSION,
    VERSION_KEY,
    check_trainable,
    decoding_files,
    format_name,
)
from nmt.interop.facts import TrainingFacts, write_facts
from nmt.interop.model_card import MAKER, model_card
from nmt.interop.model_dir import LoadedModel, find_model, read_model
from nmt.interop.new_model import is_replaced, whole_directory
from nmt.interop.stored_weights import FORMATS, packed
from nmt.interop.weights_file import read_metadata, write_weights
from nmt.models.base import Seq2Seq
from nmt.models.inference import known_matrices

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
    what = "exported folders"
    replaces = is_replaced(output, model=Path(model), overwrite=overwrite, is_one=_is_exported, what=what)
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
        write_config(folder / run_layout.CONFIG, config, name=output / run_layout.CONFIG)
        (folder / run_layout.TOKENIZER).mkdir()
        save_tokenizer(folder / run_layout.TOKENIZER, loaded.tokenizer, config, name=output / run_layout.TOKENIZER)
        if loaded.longest_source.is_known:
            write_facts(folder, TrainingFacts(loaded.longest_source.tokens, loaded.several))
        metadata = {**_metadata(loaded.path), "format": "pt", VERSION_KEY: VERSION, FORMAT_KEY: stored}
        size = len(write_weights(folder / run_layout.WEIGHTS, weights, metadata=metadata))
        card = model_card(loaded, name=output.name, stored=stored, weights=size, total=_size(folder), note=note)
        write_new(folder / run_layout.CARD, card.encode("utf-8"))
        write_new(folder / run_layout.SUMS, sums_text(_sums(folder)))
        total = _size(folder)
    return Exported(loaded, size, total)


def read_for_export(model: str | Path, *, checkpoint: str | int, plugins: Sequence[str]) -> LoadedModel:
    """The model, on the CPU; CheckpointError where an export has rounded it."""
    check_trainable(find_model(model, checkpoint=checkpoint))
    return read_model(model, plugins=plugins, device=torch.device("cpu"), checkpoint=checkpoint)


def _is_exported(folder: Path) -> bool:
    return format_name(folder) is not None


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


def _metadata(directory: Path) -> dict[str, str]:
    """Facts about the exported weights, such as the checkpoints that were averaged."""
    return {key: value for key, value in read_metadata(directory / run_layout.WEIGHTS).items() if key != MAKER}


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
