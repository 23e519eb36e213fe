"""Checkpoints, vocabularies and text as the original Zero system has them, for tests of nmt-convert."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nmt import zero
from nmt.config.schema import ModelConfig
from nmt.models import build_model
from nmt.zero.settings import DEFAULTS
from tests.console import call

SPECIAL = ["<pad>", "<unk>", "<eos>"]
SIZES = (9, 11)
"""Entries of the source and target vocabularies of the tiny models."""


def words(size: int) -> list[str]:
    """Names of all ids of a vocabulary."""
    return [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), size))]


def write_vocabularies(folder: Path, sizes: Sequence[int]) -> list[str]:
    """src.vocab and tgt.vocab; the options of nmt-convert that name them."""
    for side, size in zip(("src", "tgt"), sizes, strict=True):
        (folder / f"{side}.vocab").write_text("".join(f"{word}\n" for word in words(size)))
    return ["--source-vocab", str(folder / "src.vocab"), "--target-vocab", str(folder / "tgt.vocab")]


def text(ids: Iterable[Iterable[int]], size: int) -> str:
    """Rows of ids as lines; each is cut at its end symbol or padding."""
    lines = []
    for row in ids:
        tokens: list[str] = []
        for i in row:
            if i in (0, 2):
                break
            tokens.append(words(size)[i])
        lines.append(" ".join(tokens))
    return "".join(f"{line}\n" for line in lines)


def tiny_model(**changes: Any) -> tuple[ModelConfig, dict[str, NDArray[Any]]]:
    """A configuration and random variables of its model, every one of them, in Zero's names."""
    settings: dict[str, Any] = {"cell": "lrn", "hidden_size": 6, "embedding_size": 4, "tie_embeddings": "none"}
    settings |= {"layer_norm": False, "dropout": 0.0}
    config = ModelConfig(**{**settings, **changes})
    sizes = (SIZES[0], SIZES[0]) if config.tie_embeddings == "all" else SIZES
    generator = np.random.default_rng(5)
    arrays = zero.to_arrays(build_model(config, *sizes))
    return config, {name: generator.normal(size=a.shape).astype(np.float32) for name, a in arrays.items()}


def tiny_hyper_parameters(config: ModelConfig) -> dict[str, Any]:
    """What Zero would be told for `config`, written down here by hand."""
    return {
        "model_name": config.architecture,
        "cell": config.cell.upper(),
        "hidden_size": config.hidden_size,
        "embed_size": config.embedding_size,
        "caencoder": config.context_aware_encoder,
        "layer_norm": config.layer_norm,
        "use_deep_att": config.deep_attention,
        "dl4mt_redict": config.deep_output,
        "num_heads": config.attention_heads,
        "num_encoder_layer": config.encoder_layers,
        "num_decoder_layer": config.decoder_layers,
        "shared_source_target_embedding": config.tie_embeddings == "all",
        "shared_target_softmax_embedding": config.tie_embeddings != "none",
    }


def write_checkpoint(folder: Path, arrays: Mapping[str, Any], hyper: Mapping[str, Any] | None = None) -> list[str]:
    """model.npz with `arrays` and vocabularies that fit them; the options of nmt-convert that name them.

    `hyper` becomes param.json, as Zero writes it: all hyper-parameters, those not given with their defaults.
    """
    folder.mkdir(exist_ok=True)
    np.savez(folder / "model.npz", **arrays)
    if hyper is not None:
        (folder / "param.json").write_text(json.dumps({**DEFAULTS, **hyper}) + "\nonly the first line counts")
    (joint,) = [len(a) for name, a in arrays.items() if name.endswith("/embedding")] or [0]
    sizes = [
        joint or next(len(a) for name, a in arrays.items() if name.endswith(f"/{side}_embedding"))
        for side in ("src", "tgt")
    ]
    return ["--checkpoint", str(folder / "model.npz"), *write_vocabularies(folder, sizes)]


def write_golden(folder: Path, config: Mapping[str, Any], arrays: Any) -> list[str]:
    """A reference file's model and its source and target as text; the options of nmt-convert."""
    variables = {name: arrays[name] for name in arrays.files if name.startswith("var/")}
    folder.mkdir(exist_ok=True)
    np.savez(folder / "model.npz", **variables)
    (folder / "hparams.py").write_text(literal({k: v for k, v in config.items() if k in DEFAULTS}))
    sizes = [config[f"{side}_vocab_size"] for side in ("src", "tgt")]
    for name, size in zip(("source", "target"), sizes, strict=True):
        if f"in/{name}" in arrays.files:
            (folder / f"{name}.txt").write_text(text(arrays[f"in/{name}"], size))
    options = ["--checkpoint", str(folder / "model.npz"), "--hparams", str(folder / "hparams.py")]
    return [*options, *write_vocabularies(folder, sizes)]


def literal(hyper: Mapping[str, Any]) -> str:
    """`dict(...)` as Zero's configuration files have it, with a comment."""
    return "dict(\n" + "".join(f"    {key}={value!r},  # set\n" for key, value in hyper.items()) + ")\n"


def convert(options: Sequence[str], output: Path, *more: str) -> int:
    """The exit code of nmt-convert zero."""
    return call("nmt-convert", "zero", *options, *more, "-o", str(output))


def random_ids(rows: int, size: int) -> torch.Tensor:
    """[rows, 5] of ordinary ids, ended by the end symbol."""
    ids = torch.randint(3, size, (rows, 5), generator=torch.Generator().manual_seed(1))
    ids[:, -1] = 2
    return ids
