"""MarianMT models as transformers saves them, such as OPUS-MT's: config.json, weights and vocabularies in a folder."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from nmt.errors import CheckpointError, shown
from nmt.marian.arrays import MarianWeights, Value
from nmt.marian.foreign import Foreign, Vocabulary, decoding_of, licence_of, read_vocabulary
from nmt.marian.package import LARGEST, Package
from nmt.marian.shape import shape_of

CONFIG = "config.json"
_KIND = "marian"
"""The type of model, as transformers calls MarianMT."""


def is_marian(package: Package) -> bool:
    """Whether a folder has the configuration of such a model."""
    try:
        return CONFIG in package.files and _json(package, CONFIG).get("model_type") == _KIND
    except CheckpointError:
        return False


def read_transformers(package: Package) -> Foreign:
    """A MarianMT model as transformers saves it."""
    config = _json(package, CONFIG)
    place = package.place(CONFIG)
    if config.get("model_type") != _KIND:
        raise CheckpointError(
            f"{place}: model_type: {shown(config.get('model_type'))} is not read. Allowed: '{_KIND}'."
        )
    arrays, sha256, path = _tensors(package)
    weights = MarianWeights(path, _marian_names(arrays, path), _marian_settings(config, place))
    shape = shape_of(weights)
    shared = config.get("share_encoder_decoder_embeddings", True) is True
    target_name = "vocab.json" if shared else "target_vocab.json"

    def vocabulary(name: str, size: int, side: str) -> Vocabulary:
        return read_vocabulary(package.place(name), package.read(name), size, package, side)

    tokenizer, generation = (
        _json(package, name) if name in package.files else {}
        for name in ("tokenizer_config.json", "generation_config.json")
    )
    languages = tokenizer.get("source_lang"), tokenizer.get("target_lang")
    return Foreign(
        "opus_mt",
        weights,
        shape,
        vocabulary("vocab.json", shape.source_size, "source"),
        vocabulary(target_name, shape.target_size, "target"),
        sha256=sha256,
        languages=(str(languages[0]), str(languages[1])) if all(languages) else None,
        licence=licence_of(package),
        decoding=decoding_of([generation, config], {"num_beams": "beam_size", "length_penalty": "length_penalty"}),
    )


def _json(package: Package, name: str) -> dict[str, Any]:
    try:
        found = json.loads(package.text(name))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{package.place(name)}: not readable as JSON ({error})") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{package.place(name)}: holds no JSON object")
    return found


def _tensors(package: Package) -> tuple[dict[str, np.ndarray], str, Path]:
    """The weights in fp32, the SHA-256 of their file, and its name."""
    name = "model.safetensors" if "model.safetensors" in package.files else "pytorch_model.bin"
    path, content = package.place(name), package.read(name, largest=LARGEST)
    try:
        if name.endswith(".bin"):
            tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        else:
            tensors = safetensors.torch.load(content)
        arrays = {str(key): value.float().numpy() for key, value in tensors.items()}
    except (
        safetensors.SafetensorError,
        pickle.UnpicklingError,
        RuntimeError,
        ValueError,
        TypeError,
        AttributeError,
        EOFError,
    ) as error:
        raise CheckpointError(
            f"{path}: no readable weights of transformers ({' '.join(str(error).split())[:200]})"
        ) from error
    return arrays, hashlib.sha256(content).hexdigest(), path


_SAME_SETTING = {"enc-depth": "encoder_layers", "dec-depth": "decoder_layers", "dim-emb": "d_model"}
_ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}
_CONFIG_MUST_BE = {
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "scale_embedding": True,
    "add_bias_logits": False,
}


def _marian_settings(config: Mapping[str, Any], place: Path) -> dict[str, Any]:
    """The settings of Marian that a configuration of transformers means."""
    for key, value in _CONFIG_MUST_BE.items():
        if config.get(key, value) != value:
            raise CheckpointError(f"{place}: {key}: {shown(config[key])} is not computed. Allowed: {value}.")
    activation = config.get("activation_function", "gelu")
    if activation not in _ACTIVATIONS:
        allowed = ", ".join(_ACTIVATIONS)
        raise CheckpointError(f"{place}: activation_function: {shown(activation)} is not computed. Allowed: {allowed}.")
    heads = config.get("encoder_attention_heads", 16)
    if config.get("decoder_attention_heads", 16) != heads:
        raise CheckpointError(f"{place}: encoder_attention_heads and decoder_attention_heads must be equal")
    settings = {name: config.get(key) for name, key in _SAME_SETTING.items()}
    return {
        **settings,
        "type": "transformer",
        "transformer-heads": heads,
        "transformer-ffn-activation": _ACTIVATIONS[activation],
        "transformer-decoder-autoreg": "self-attention",
    }


def _marian_names(arrays: Mapping[str, np.ndarray], path: Path) -> dict[str, Value]:
    """Weights of transformers by their names in Marian; what has no counterpart keeps its own."""
    found: dict[str, Value] = {}
    rest = dict(arrays)

    def take(name: str) -> np.ndarray | None:
        return rest.pop(name, None)

    shared, encoder, decoder = (
        take(f"model.{part}.weight") for part in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    )
    for side in ("encoder", "decoder"):
        take(f"model.{side}.embed_positions.weight")  # sinusoids, which are computed
    encoder = shared if encoder is None else encoder
    decoder = encoder if decoder is None else decoder
    if encoder is None or decoder is None:
        raise CheckpointError(f"{path}: model.shared.weight is missing")
    if np.array_equal(encoder, decoder):
        found["Wemb"] = encoder
    else:
        found["encoder_Wemb"], found["decoder_Wemb"] = encoder, decoder
    output = take("lm_head.weight")
    if output is not None and not np.array_equal(output, decoder):
        found["decoder_ff_logit_out_Wt"] = output
    bias = take("final_logits_bias")
    if bias is not None:
        found["decoder_ff_logit_out_b"] = bias
    parts = {"self_attn": "self", "encoder_attn": "context"}
    for name in list(rest):
        match = re.fullmatch(
            r"model\.(encoder|decoder)\.layers\.(\d+)\.(\w+)(?:\.(\w)(?:ut)?_proj)?\.(weight|bias)", name
        )
        if match is None:
            continue
        side, layer, part, projection, kind = match.groups()
        start, value = f"{side}_l{int(layer) + 1}", rest[name]
        row = value[None] if value.ndim == 1 else value.T
        if projection and part in parts:
            new = f"{start}_{parts[part]}_{'W' if kind == 'weight' else 'b'}{projection}"
        elif part in ("fc1", "fc2"):
            new = f"{start}_ffn_{'W' if kind == 'weight' else 'b'}{part[2]}"
        else:
            norms = {"final_layer_norm": "ffn_ffn", **{f"{key}_layer_norm": f"{to}_Wo" for key, to in parts.items()}}
            if part not in norms:
                continue
            new = f"{start}_{norms[part]}_ln_{'scale' if kind == 'weight' else 'bias'}"
        found[new] = row
        del rest[name]
    return {**found, **rest}
