"""A foreign model as a model of nmt: configuration, tokenizer and weights, written as a model directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.config import Config
from nmt.config.load import validate
from nmt.data.sentencepiece import SentencePieceOptions, SentencePieceTokenizer
from nmt.errors import CheckpointError
from nmt.interop.export import check_output, write_model
from nmt.marian.foreign import Foreign

NO_PADDING = -1e9
"""The logit of the padding, which Marian's models do not have; in those of transformers it is 0."""
_UNKNOWN_LANGUAGES = ("source", "target")


def weights_of(foreign: Foreign) -> dict[str, Tensor]:
    """The weights by nmt's names, in fp32."""
    shape, array = foreign.shape, foreign.weights.array
    found: dict[str, np.ndarray] = {}

    def table(name: str, ids: list[int]) -> np.ndarray:
        """Rows of nmt's ids; padding that the model does not have is zero."""
        values = array(name).T if name.endswith("_out_W") else array(name)
        rows = values[[max(i, 0) for i in ids]]
        rows[[i < 0 for i in ids]] = 0.0
        return rows

    source, target, output = shape.tables
    source_ids, target_ids = foreign.source.old_ids(), foreign.target.old_ids()
    found["embeddings.source"] = table(source, source_ids)
    if foreign.tying != "all":
        found["embeddings.target"] = table(target, target_ids)
    if foreign.tying == "none":
        found["embeddings.softmax"] = table(output, target_ids)
    bias = array("decoder_ff_logit_out_b")[0]
    found["embeddings.output_bias"] = np.array([NO_PADDING if i < 0 else bias[i] for i in target_ids], np.float32)

    def linear(to: str, *names: str) -> None:
        found[f"{to}.weights.0"] = np.concatenate([array(name.format("W")).T for name in names])
        found[f"{to}.bias"] = np.concatenate([array(name.format("b"))[0] for name in names])

    def norm(to: str, name: str) -> None:
        found[f"{to}.scale"], found[f"{to}.offset"] = array(f"{name}_ln_scale")[0], array(f"{name}_ln_bias")[0]

    for side, layers in (("encoder", shape.encoder_layers), ("decoder", shape.decoder_layers)):
        for number in range(layers):
            name, block = f"{side}_l{number + 1}", f"{side}.blocks.{number}"
            if side == "decoder" and shape.unit:
                gate, candidate = array(f"{name}_rnn_Wf"), array(f"{name}_rnn_W")
                found[f"{block}.mixing.cell.input_weight"] = np.concatenate([gate.T, candidate.T])
                found[f"{block}.mixing.cell.forget_gate_bias"] = array(f"{name}_rnn_bf")[0]
                norm(f"{block}.norm", f"{name}_rnn_ffn")
                if shape.projection:
                    linear(f"{block}.mixing.out", f"{name}_rnn_{{}}o")
            else:
                mixing = f"{block}.mixing" if side == "encoder" else f"{block}.mixing.attention"
                linear(f"{mixing}.inputs", *(f"{name}_self_{{}}{part}" for part in "qkv"))
                linear(f"{mixing}.out", f"{name}_self_{{}}o")
                norm(f"{block}.norm", f"{name}_self_Wo")
            if side == "decoder":
                linear(f"{block}.attention.query", f"{name}_context_{{}}q")
                linear(f"{block}.attention.source", f"{name}_context_{{}}k", f"{name}_context_{{}}v")
                linear(f"{block}.attention.out", f"{name}_context_{{}}o")
                norm(f"{block}.query_norm", f"{name}_context_Wo")
            linear(f"{block}.feed_forward.up", f"{name}_ffn_{{}}1")
            linear(f"{block}.feed_forward.down", f"{name}_ffn_{{}}2")
            norm(f"{block}.feed_forward.norm", f"{name}_ffn_ffn")
    return {name: torch.from_numpy(np.ascontiguousarray(value, np.float32)) for name, value in found.items()}


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
    options = SentencePieceOptions(joint=joint, model_type="unigram", same_ids=same)
    return SentencePieceTokenizer(*models, options=options)


def convert(foreign: Foreign, output: Path) -> None:
    """Write the model directory `output`. Raises CheckpointError if it is there, or the files do not fit together."""
    check_output(output)
    tokenizer = tokenizer_of(foreign)
    config = configuration(foreign, tokenizer, output=output)
    metadata = {"converted": f"{foreign.form} {foreign.weights.path}", "sha256": foreign.sha256}
    write_model(output, weights_of(foreign), config=config, tokenizer=tokenizer, metadata=metadata)
