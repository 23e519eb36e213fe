"""Writes Transformer-Tiny (peer_model.py) as a model of CTranslate2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peer_model import BOS, EOS, UNK, Transformer
from torch import Tensor, nn

from nmt.errors import ConfigError


def load_ctranslate2() -> Any:
    """The package; ConfigError if it is not installed."""
    try:
        import ctranslate2
    except ImportError as error:
        raise ConfigError(f"--export needs CTranslate2 (pip install ctranslate2): {error}") from error
    return ctranslate2


def export(model: Transformer, names: list[str], folder: Path, *, quantization: str = "int8") -> None:
    """Write a folder with the model and the `names` of its pieces; files of the same names are replaced."""
    encoder, decoder = model.encoder.layers, model.decoder.layers
    heads = encoder[0].self_attn.num_heads
    spec = load_ctranslate2().specs.TransformerSpec.from_config((len(encoder), len(decoder)), heads, pre_norm=True)
    for side, layers, norm in (
        (spec.encoder, encoder, model.encoder.norm),
        (spec.decoder, decoder, model.decoder.norm),
    ):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight = _array(model.embedding.weight)
        side.scale_embeddings = True
        side.position_encodings.encodings = _array(model.positions)
        _norm(side.layer_norm, norm)
        for target, layer in zip(side.layer, layers, strict=True):
            _self_attention(target.self_attention, layer.self_attn, layer.norm1)
            if side is spec.decoder:
                _cross_attention(target.attention, layer.multihead_attn, layer.norm2)
            _norm(target.ffn.layer_norm, layer.norm3 if side is spec.decoder else layer.norm2)
            _linear(target.ffn.linear_0, layer.linear1.weight, layer.linear1.bias)
            _linear(target.ffn.linear_1, layer.linear2.weight, layer.linear2.bias)
    _linear(spec.decoder.projection, model.embedding.weight, model.bias)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = names[UNK], names[BOS], names[EOS]
    spec.config.decoder_start_token, spec.config.add_source_eos = names[BOS], True
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def _self_attention(target: Any, attention: nn.MultiheadAttention, norm: nn.LayerNorm) -> None:
    """One product for queries, keys and values, as PyTorch has it."""
    _norm(target.layer_norm, norm)
    _linear(target.linear[0], attention.in_proj_weight, attention.in_proj_bias)
    _linear(target.linear[1], attention.out_proj.weight, attention.out_proj.bias)


def _cross_attention(target: Any, attention: nn.MultiheadAttention, norm: nn.LayerNorm) -> None:
    """One product for queries, another for keys and values."""
    width = attention.embed_dim
    _norm(target.layer_norm, norm)
    _linear(target.linear[0], attention.in_proj_weight[:width], attention.in_proj_bias[:width])
    _linear(target.linear[1], attention.in_proj_weight[width:], attention.in_proj_bias[width:])
    _linear(target.linear[2], attention.out_proj.weight, attention.out_proj.bias)


def _linear(target: Any, weight: Tensor, bias: Tensor) -> None:
    target.weight, target.bias = _array(weight), _array(bias)


def _norm(target: Any, norm: Any) -> None:
    target.gamma, target.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    """A copy, because CTranslate2 may change what it is given."""
    return tensor.detach().numpy().copy()
