"""Architectures; importing this package registers all of them in MODELS."""

from __future__ import annotations

from nmt.models.base import PAD, DecodingState, Encoded, Seq2Seq
from nmt.models.build import build_model, cell_maker, count_parameters, initializer, parameters_by_part
from nmt.models.classifier import Classifier
from nmt.models.decoder import Decoder, DecoderLayer
from nmt.models.encoder import Bidirectional, Encoder, EncoderOutput
from nmt.models.language_model import LanguageModel
from nmt.models.parts import Dropout, Embeddings, InitialStates, LayerNorm, Linear, Readout
from nmt.models.recurrent import DeepNMT, RNNSearch, RNNSearchDeepAtt
from nmt.models.tagger import Tagger
from nmt.models.transformer import Transformer

__all__ = [
    "PAD",
    "Bidirectional",
    "Classifier",
    "Decoder",
    "DecoderLayer",
    "DecodingState",
    "DeepNMT",
    "Dropout",
    "Embeddings",
    "Encoded",
    "Encoder",
    "EncoderOutput",
    "InitialStates",
    "LanguageModel",
    "LayerNorm",
    "Linear",
    "RNNSearch",
    "RNNSearchDeepAtt",
    "Readout",
    "Seq2Seq",
    "Tagger",
    "Transformer",
    "build_model",
    "cell_maker",
    "count_parameters",
    "initializer",
    "parameters_by_part",
]
