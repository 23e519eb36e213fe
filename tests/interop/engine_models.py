"""Small random models of every architecture and unit, and their files for the engine."""

from __future__ import annotations

from typing import Any

import torch

from nmt.config.schema import DecodingConfig, ModelConfig
from nmt.interop.engine.export import file_of, sections_of, settings_of
from nmt.interop.engine.lowering import lower
from nmt.interop.engine.program import Precision
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.models.transformer import FORMS
from nmt.search.shortlist import Shortlist

TRANSFORMER = {"architecture": "transformer", "embedding_size": 24}


def section(**changes: Any) -> ModelConfig:
    sizes = {"hidden_size": 16, "embedding_size": 12, "init_range": 0.5, "dropout": 0.3}
    if changes.get("architecture") == "transformer":
        sizes = {"embedding_size": 24}
    return ModelConfig(**{**sizes, **changes})


def make_model(config: ModelConfig) -> Seq2Seq:
    """With random values in all weights, biases too, so that none of them can be forgotten unseen."""
    torch.manual_seed(3)
    same = config.tie_embeddings == "all"
    model = build_model(config, 19 if same else 17, 19)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.add_(torch.randn_like(weight) * (0.5 if "embeddings" in name else 0.3))
    return model.eval()


def content_of(
    model: Seq2Seq,
    *,
    precision: Precision = "fp32",
    shortlist: Shortlist | None = None,
    subwords: tuple[bytes, bytes] = (b"source", b"target"),
    **decoding: Any,
) -> bytes:
    """The bytes of its file."""
    sections = sections_of(
        lower(model, precision=precision),
        settings=settings_of(DecodingConfig(**decoding)),
        vocabularies=(model.source_vocab_size, model.target_vocab_size),
        subwords=subwords,
        shortlist=shortlist,
    )
    return b"".join(file_of(sections))


UNITS = {
    "atr": [{"activation": a} for a in ("none", "output", "state", "candidate")]
    + [{"gates": "coupled"}, {"gates": "coupled_input", "activation": "output"}],
    "gru": [{}, {"reset": "after"}],
    "lstm": [{}, {"peepholes": True}, {"output_activation": "identity"}, {"output_activation": "sigmoid"}],
    "rnn": [{}, {"activation": "relu"}],
    "lrn": [{}, {"tanh": True}],
    "olrn": [{}, {"tanh": True}],
    "sru": [{}],
    "ssru": [{"forget_bias": 0.5}],
    "min_gru": [{}, {"positive": True}],
    "min_lstm": [{}, {"positive": True}],
}
EACH_UNIT = [(name, options) for name, all_options in UNITS.items() for options in all_options]

OTHERS = [
    {"encoder_layers": 3, "decoder_layers": 3},
    {"encoder_layers": 2, "decoder_layers": 3, "context_aware_encoder": False},
    {"encoder_layers": 2, "decoder_layers": 3, "deep_attention": True, "attention_heads": 4},
    {"decoder_layers": 2, "deep_attention": True, "attention_heads": 2, "layer_norm": False},
    {"deep_output": False, "embedding_size": 16, "tie_embeddings": "all"},
    {"deep_output": False, "decoder_layers": 2, "context_aware_encoder": False},
    {"encoder_hidden_size": 20, "tie_embeddings": "none"},
    {"encoder_hidden_size": 20, "context_aware_encoder": False, "layer_norm": False},
    {"encoder_cell": "lstm", "decoder_cell": "gru", "decoder_layers": 2},
    {"encoder_direction": "forward", "encoder_layers": 2, "cell": "lrn"},
    {"architecture": "rnnsearch", "encoder_direction": "forward", "cell": "atr"},
    {"architecture": "transformer", "encoder_direction": "forward", "cell": "lrn", "hidden_size": 512},
    {"encoder_cell": "atr", "encoder_cell_options": {"activation": "output"}, "decoder_cell": "sru"},
    {"architecture": "rnnsearch", "cell": "gru", "tie_embeddings": "none"},
    {"architecture": "rnnsearch", "cell": "gru", "layer_norm": False, "context_aware_encoder": False},
    {"architecture": "rnnsearch", "encoder_cell": "lrn", "decoder_cell": "lstm", "encoder_hidden_size": 20},
    {"architecture": "rnnsearch_deepatt", "encoder_layers": 3, "decoder_layers": 3, "attention_heads": 4},
    {"architecture": "rnnsearch_deepatt", "encoder_hidden_size": 20, "layer_norm": False, "tie_embeddings": "all"},
    {
        "architecture": "transformer",
        "encoder_direction": "forward",
        "embedding_size": 24,
        "architecture_options": {"encoder_mixing": "attention", "heads": 2},
    },
]

BLOCKS = [
    {"encoder_mixing": "attention", "decoder_mixing": "attention"},
    {"encoder_mixing": "attention", "feed_forward": "gated", "norm": "rms"},
    {"decoder_mixing": "attention", "feed_forward": "gated", "heads": 2, "encoder_layers": 1},
    {"norm": "rms", "decoder_feed_forward": 0, "decoder_layers": 1, "encoder_unit_size": 10, "decoder_unit_size": 18},
    {"encoder_feed_forward": 20, "decoder_feed_forward": 28, "heads": 3},
    *(
        {**dict(FORMS[form]), "encoder_layers": 2, "decoder_layers": 2, "heads": 2, **more}
        for form, more in (
            ("marian", {}),
            ("opus_mt", {}),
            ("marian", {"decoder_mixing": "attention", "output_bias": False, "start_vector": True}),
            ("opus_mt", {"feed_forward": "gelu", "embedding_bias": True, "norm": "rms"}),
            ("marian", {"norm_position": "before", "encoder_mixing": "unit", "positions": "none"}),
        )
    ),
]
