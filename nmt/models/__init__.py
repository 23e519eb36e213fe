"""Architectures; importing this package registers all of them in MODELS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nmt.models.base import PAD, Encoded, Seq2Seq
from nmt.models.build import build_model, cell_maker, freeze, initializer, parameters_by_part
from nmt.models.decoder import Decoder, DecoderLayer
from nmt.models.encoder import Bidirectional, Encoder, EncoderOutput
from nmt.models.parts import Dropout, Embeddings, InitialStates, LayerNorm, Readout
from nmt.models.recurrent import DeepNMT, RNNSearch, RNNSearchDeepAtt
from nmt.models.transformer import Transformer
from nmt.registry import MODELS

if TYPE_CHECKING:
    from nmt.classification.model import Classifier
    from nmt.language_models.model import LanguageModel
    from nmt.tagging.model import Tagger

__all__ = [
    "PAD",
    "Bidirectional",
    "Classifier",
    "Decoder",
    "DecoderLayer",
    "DeepNMT",
    "Dropout",
    "Embeddings",
    "Encoded",
    "Encoder",
    "EncoderOutput",
    "InitialStates",
    "LanguageModel",
    "LayerNorm",
    "RNNSearch",
    "RNNSearchDeepAtt",
    "Readout",
    "Seq2Seq",
    "Tagger",
    "Transformer",
    "build_model",
    "cell_maker",
    "freeze",
    "initializer",
    "parameters_by_part",
]


def __getattr__(name: str) -> Any:
    elsewhere = {"Classifier": "classifier", "LanguageModel": "language_model", "Tagger": "tagger"}
    if name in elsewhere:  # in packages of their own since version 0.4
        return MODELS.get(elsewhere[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
