"""A foreign model as a model of nmt: configuration, tokenizer and weights, written as a model directory."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from nmt.config import Config
from nmt.config.load import validate
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.errors import CheckpointError
from nmt.files import temporary_directory
from nmt.interop.engine.export import export_engine
from nmt.interop.export import Exported, is_converted, is_replaced, write_model
from nmt.marian.arrays import Quantized
from nmt.marian.foreign import NO_LICENCE, Foreign
from nmt.marian.pieces import BYTE, pieces_of
from nmt.marian.shape import parts_of
from nmt.marian.shortlists import MULTIPLE
from nmt.search.shortlist import Shortlist, load_shortlist

SETTINGS_OF = "settings"
"""The name of Marian's settings among the metadata of weights."""
NO_PADDING = -1e3
"""The logit of the padding, which Marian's models do not have; in those of transformers it is 0. Label smoothing adds
its share of it to losses in training, so it is no larger than is needed."""
SHORTLIST = "shortlist.safetensors"
"""The name of a shortlist in a model directory."""
_SEARCH: dict[str, Any] = {
    "length_normalization": "power",
    "length_penalty": 1.0,
    "max_length_factor": 3.0,
    "max_length_offset": 0,
}
"""The search of Marian and transformers, where the files do not say another one."""
_UNKNOWN_LANGUAGES = ("source", "target")


class Converted(NamedTuple):
    """The weights of a model by nmt's names."""

    weights: dict[str, Tensor]
    """fp32"""
    scales: dict[str, Tensor]
    """Of matrices [M, K] that are stored in 8 bits, what the values of each row are multiplied with [M]"""


def converted(foreign: Foreign) -> Converted:
    """The weights of a model; int8 values are what their file multiplies with."""
    shape, values, array = foreign.shape, foreign.weights.values, foreign.weights.array
    found: dict[str, np.ndarray] = {}
    scales: dict[str, np.ndarray] = {}

    def note_scales(to: str, *names: str) -> None:
        """What the parts of the matrix `to`, one below the other, have as one multiplier each."""
        parts = [values[name] for name in names]
        heights = [len(found[to]) // len(parts)] * len(parts)
        if all(isinstance(part, Quantized) for part in parts):
            steps = [1 / part.multiplier for part in parts if isinstance(part, Quantized)]
            scales[to] = np.repeat(np.array(steps, np.float32), heights)

    def table(to: str, name: str, ids: list[int]) -> None:
        """Rows of nmt's ids; padding that the model does not have is zero."""
        rows = (array(name).T if name.endswith("_out_W") else array(name))[[max(i, 0) for i in ids]]
        rows[[i < 0 for i in ids]] = 0.0
        found[to] = rows
        note_scales(to, name)

    source, target, output = shape.tables
    source_ids, target_ids = foreign.source.old_ids(), foreign.target.old_ids()
    table("embeddings.source", source, source_ids)
    if foreign.tying != "all":
        table("embeddings.target", target, target_ids)
    if foreign.tying == "none":
        table("embeddings.softmax", output, target_ids)
    bias = array("decoder_ff_logit_out_b")[0]
    found["embeddings.output_bias"] = np.array([NO_PADDING if i < 0 else bias[i] for i in target_ids], np.float32)
    for part in parts_of(shape):
        weights = [array(weight).T if part.inputs else array(weight)[0] for weight, _ in part.theirs]
        found[part.weight] = np.concatenate(weights)
        found[part.bias] = np.concatenate([array(bias)[0] for _, bias in part.theirs if bias is not None])
        note_scales(part.weight, *(weight for weight, _ in part.theirs))

    def tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
        return {name: torch.from_numpy(np.ascontiguousarray(value, np.float32)) for name, value in arrays.items()}

    return Converted(tensors(found), tensors(scales))


def configuration(foreign: Foreign, tokenizer: SentencePieceTokenizer, *, output: Path) -> Config:
    """The configuration of the model directory `output`."""
    shape = foreign.shape
    languages = foreign.languages or _UNKNOWN_LANGUAGES
    options = {
        "form": foreign.form,
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        "heads": shape.heads,
        "encoder_feed_forward": shape.encoder_feed_forward,
        "decoder_feed_forward": shape.decoder_feed_forward,
        "feed_forward": shape.activation,
        "decoder_mixing": "unit" if shape.unit else "attention",
        "decoder_projection": shape.projection,
    }
    raw: dict[str, Any] = {
        "run_dir": str(output),
        "data": {
            "source_language": languages[0],
            "target_language": languages[1],
            "tokenizer": "sentencepiece",
            "tokenizer_options": dataclasses.asdict(tokenizer.options),
        },
        "model": {
            "architecture": "transformer",
            "embedding_size": shape.width,
            "tie_embeddings": foreign.tying,
            **({"cell": "ssru"} if shape.unit else {}),
            "architecture_options": options,
        },
        "decoding": {**_SEARCH, **foreign.decoding, "shortlist": None if foreign.lexicon is None else SHORTLIST},
    }
    return validate(raw, origin=f"{foreign.weights.path}: the configuration that its settings mean")


def tokenizer_of(foreign: Foreign) -> SentencePieceTokenizer:
    """The SentencePiece models of both sides with nmt's ids. Raises CheckpointError."""
    models = []
    for side in (foreign.source, foreign.target):
        try:
            models.append(side.rebuilt())
        except ValueError as error:
            raise CheckpointError(f"{foreign.weights.path}: its vocabulary: {error}") from error
    joint = models[0] == models[1]
    same = foreign.tying == "all" and not joint
    options = SentencePieceOptions(
        joint=joint,
        model_type="unigram",
        same_ids=same,
        vocab_size=max(len(pieces_of(model)) for model in models),
        byte_fallback=any(piece.kind == BYTE for piece in pieces_of(models[1])),
    )
    return SentencePieceTokenizer(*models, options=options)


def convert(foreign: Foreign, output: Path, *, overwrite: bool = False) -> None:
    """Write the model directory `output`; `overwrite` replaces one that was converted.

    Raises CheckpointError if there is another one, or the files do not fit together.
    """
    model, what = foreign.weights.path, "converted models"
    replaces = is_replaced(output, model=model, overwrite=overwrite, is_one=is_converted, what=what)
    _write(foreign, output, converted(foreign), replace=replaces)


def _write(foreign: Foreign, output: Path, made: Converted, *, replace: bool = False) -> None:
    tokenizer = tokenizer_of(foreign)
    config = configuration(foreign, tokenizer, output=output)
    more = {} if foreign.lexicon is None else {SHORTLIST: shortlist_of(foreign, tokenizer).save_bytes(tokenizer)}
    write_model(
        output,
        made.weights,
        config=config,
        tokenizer=tokenizer,
        metadata=origin_of(foreign),
        more=more,
        replace=replace,
    )


def origin_of(foreign: Foreign) -> dict[str, str]:
    """Where a model comes from, as it is kept beside the weights."""
    return {
        "converted": f"{foreign.form} {foreign.weights.path}",
        "sha256": foreign.sha256,
        "licence": foreign.licence or NO_LICENCE,
        SETTINGS_OF: json.dumps(dict(foreign.weights.settings), default=str),
    }


def card_of(foreign: Foreign) -> str:
    """What the card of an exported file says about where it comes from, in Markdown."""
    origin = origin_of(foreign)
    return (
        f"Converted from {foreign.weights.path.name} (SHA-256 {origin['sha256']}), a model of "
        f"{'Marian' if foreign.form == 'marian' else 'OPUS-MT'}. Licence: {origin['licence']}."
    )


def convert_to_file(
    foreign: Foreign, output: Path, *, precision: Literal["fp32", "int8"], overwrite: bool = False
) -> Exported:
    """Write the file `output` for the engine; with int8, weights that are stored in 8 bits stay as they are.

    Raises CheckpointError as `export_engine`.
    """
    made = converted(foreign)
    with temporary_directory("nmt-convert") as folder:
        model = folder / "model"
        _write(foreign, model, made)
        return export_engine(
            model,
            output,
            precision=precision,
            read_shortlist=lambda path, tokenizer: cast("Any", load_shortlist(path, tokenizer)),
            overwrite=overwrite,
            note=card_of(foreign),
            scales=made.scales,
        )


def shortlist_of(foreign: Foreign, tokenizer: SentencePieceTokenizer) -> Shortlist:
    """The shortlist of a model that has one, in nmt's ids, with Marian's rule for the number of words."""
    lexicon = foreign.lexicon
    assert lexicon is not None
    source_ids, target_ids = foreign.source.old_ids(), foreign.target.old_ids()
    ours = {old: new for new, old in enumerate(target_ids) if old >= 0}
    lists = [[] if old < 0 else [ours[int(i)] for i in lexicon.of(old)] for old in source_ids]
    return Shortlist(
        frequent=torch.tensor([ours[i] for i in range(lexicon.frequent)], dtype=torch.int32),
        partners=torch.tensor([i for each in lists for i in each], dtype=torch.int32),
        starts=torch.tensor(np.cumsum([0, *map(len, lists)])),
        target_size=tokenizer.target_size,
        multiple=MULTIPLE,
    )
