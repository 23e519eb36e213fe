"""Exporting a model as one file for the engine: what `nmt-export --format engine` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from nmt.data import SentencePieceTokenizer, Tokenizer
from nmt.errors import CheckpointError, ConfigError, printable
from nmt.files import reason, writing
from nmt.interop.engine.file import Content, WordLists, file_of, sections_of
from nmt.interop.engine.lowering import lower
from nmt.interop.engine.opened import MAGIC
from nmt.interop.engine.settings import Settings, notes_on, settings_in_words, settings_of
from nmt.interop.engine.tensors import SMALLEST_INT8, Precision
from nmt.interop.export import check_range
from nmt.interop.exported import check_trainable
from nmt.interop.model_card import facts_for_tools, model_card
from nmt.interop.model_dir import LoadedModel, find_model, read_model
from nmt.interop.run_layout import check_no_part

PRECISIONS: Final[dict[Precision, str]] = {
    "int8": f"int8: matrices of {SMALLEST_INT8} columns or more with a scale for each row, all else fp32",
    "fp32": "fp32",
    "bf16": "bf16: matrices and embeddings, vectors fp32",
}
"""What weights can be stored as, in words."""
_CPU: Final = torch.device("cpu")

ReadShortlist = Callable[[str, Tokenizer], WordLists]


class ExportedFile(NamedTuple):
    """What was written."""

    model: LoadedModel
    """As it was read."""
    weights: int
    """Bytes of the weights."""
    total: int
    """Bytes of the file."""
    notes: list[str]
    """Settings that the file does not have; translations are the same without them."""


def export_engine(
    model: str | Path,
    output: Path,
    *,
    precision: Precision = "int8",
    shortlist: str | Path | None = None,
    read_shortlist: ReadShortlist,
    checkpoint: str | int = "best",
    plugins: Sequence[str] = (),
    overwrite: bool = False,
    note: str = "",
) -> ExportedFile:
    """Write the model in `model` to the file `output`, which appears when it is complete.

    Args:
        model: an argument of `load_model`, with `checkpoint` and `plugins`.
        shortlist: file of nmt-shortlist; by default the one in the decoding settings, if any.
        read_shortlist: reads such a file for a tokenizer.
        overwrite: replace an existing file of this kind.
        note: text in Markdown for the card, such as the licence and what the model is for.

    Raises:
        CheckpointError: `output` exists, or the model cannot be read or has been rounded by an export.
        ConfigError: the engine does not have a class, tokenizer or search of the model; the line names it.
        DataError: the shortlist cannot be used.
    """
    _check_output(output, model=Path(model), overwrite=overwrite)
    check_trainable(find_model(model, checkpoint=checkpoint))
    loaded = read_model(model, plugins=plugins, device=_CPU, checkpoint=checkpoint)
    named = str(shortlist) if shortlist is not None else loaded.config.decoding.shortlist
    lists = None if named is None else read_shortlist(named, loaded.tokenizer)
    sections = engine_sections(loaded, precision=precision, shortlist=lists)
    weights = len(sections["DATA"])
    sections["META"] = _meta(loaded, sections, name=output.name, precision=precision, note=note)
    pieces = file_of(sections)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with writing(output) as stream:
            stream.writelines(pieces)
    except OSError as error:
        raise CheckpointError(f"{output}: cannot be written ({reason(error)})") from error
    return ExportedFile(loaded, weights, sum(map(len, pieces)), notes_on(loaded.config.decoding))


def engine_sections(
    loaded: LoadedModel, *, precision: Precision, shortlist: WordLists | None = None
) -> dict[str, Content]:
    """The sections of the file but `META`; raises ConfigError as `export_engine`."""
    settings = settings_of(loaded.config.decoding)
    if type(loaded.tokenizer) is not SentencePieceTokenizer:
        name = loaded.config.data.tokenizer
        raise ConfigError(f"data.tokenizer: '{name}' is not known to the engine. Allowed: sentencepiece.")
    if precision == "bf16":
        check_range(loaded.model)
    return sections_of(
        lower(loaded.model, precision=precision),
        settings=settings,
        vocabularies=(loaded.model.source_vocab_size, loaded.model.target_vocab_size),
        subwords=loaded.tokenizer.models,
        shortlist=shortlist,
    )


def _check_output(output: Path, *, model: Path, overwrite: bool) -> None:
    """CheckpointError unless `output` is free, or a model file that is to be replaced."""
    check_no_part(output, models=(model,))
    if not (output.exists() or output.is_symlink()):
        return
    if output.is_symlink() or not output.is_file():
        raise CheckpointError(f"{output}: exists and is not a file; choose another name")
    if not overwrite:
        raise CheckpointError(f"{output}: exists already; choose another name or replace it with --overwrite")
    try:
        with output.open("rb") as stream:
            is_ours = stream.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise CheckpointError(f"{output}: cannot be read ({reason(error)})") from error
    if not is_ours:
        raise CheckpointError(f"{output}: --overwrite replaces only model files, and this is not one; move it away")


def _meta(loaded: LoadedModel, sections: dict[str, Content], *, name: str, precision: Precision, note: str) -> bytes:
    """The description of the file for people and tools."""
    config = loaded.config
    settings: Settings = settings_of(config.decoding)
    total, weights = sum(map(len, sections.values())), len(sections["DATA"])
    words = PRECISIONS[precision]
    meta: dict[str, Any] = {
        "name": printable(name),
        **facts_for_tools(loaded, precision=precision),
        "decoding": settings_in_words(settings),
        "training_max_length": config.data.max_length,
        "card": model_card(loaded, name=name, stored=precision, weights=weights, total=total, words=words, note=note),
    }
    return json.dumps(meta, ensure_ascii=False, indent=1).encode("utf-8")
