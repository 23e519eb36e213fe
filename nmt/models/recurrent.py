"""The recurrent architectures: rnnsearch, deepnmt, and rnnsearch_deepatt with deep attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from nmt.models.base import Seq2Seq
from nmt.models.build import cell_maker, check_recurrent_dropout, initializer
from nmt.models.decoder import (
    AttendingLayer,
    AttendingRNN,
    AttentionRNN,
    ConcatenatingLayer,
    ContextLayer,
    DecoderLayer,
    DeepAttentionRNN,
    DeepDecoder,
    ShallowDecoder,
)
from nmt.models.encoder import Alternating, DeepEncoder, Encoder, first_layer
from nmt.models.parts import Embeddings, InitialStates, Readout, TanhReadout
from nmt.registry import MODELS

if TYPE_CHECKING:
    from nmt.config.schema import ModelConfig

Model = TypeVar("Model", bound=Seq2Seq)

_FIXED: dict[str, int | bool] = {
    "encoder_layers": 1,
    "decoder_layers": 1,
    "attention_heads": 1,
    "deep_attention": False,
    "deep_output": True,
}


@MODELS.register("rnnsearch")
class RNNSearch(Seq2Seq):
    """Attentional encoder-decoder (Bahdanau et al., ICLR 2015) with any unit and a conditional decoder.

    The decoder starts from tanh of a linear map; the readout sees its state, its context and the
    word before; attention has one head over the encoder's outputs.
    """

    variable_scope = "rnnsearch"
    decoder: ShallowDecoder

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        return check_recurrent_dropout(config) + [
            (key, f"{given!r} is not possible, 'rnnsearch' has {key}: {str(fixed).lower()}")
            for key, fixed in _FIXED.items()
            if (given := getattr(config, key)) != fixed
        ]

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> RNNSearch:
        size = config.embedding_size
        direction, aware = config.encoder_direction, config.context_aware_encoder
        encoder = first_layer(cell_maker(config, "encoder"), size, direction=direction, context_aware=aware)
        rnn = AttentionRNN(cell_maker(config, "decoder"), size, encoder.output_size, layer_norm=config.layer_norm)
        sizes = source_vocab_size, target_vocab_size
        return _of_one_layer(cls, config, sizes, encoder=encoder, rnn=rnn, tanh=True, joined=False)


@MODELS.register("deepnmt")
class DeepNMT(Seq2Seq):
    """Deep encoder and decoder (Zhang and Sennrich, ACL 2019, section 4).

    The first encoder layer is bidirectional, unless `encoder_direction` is `forward`, those above run forward. The
    first decoder layer (with deep attention each of them) attends to the source; the others read its context, in a
    second cell if the encoder is context-aware, else in addition to their input.
    """

    variable_scope = "nmt"
    encoder: DeepEncoder
    decoder: DeepDecoder

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        problems = check_recurrent_dropout(config)
        if config.hidden_size % config.attention_heads:
            message = f"{config.attention_heads} must divide hidden_size ({config.hidden_size})"
            problems.append(("attention_heads", message))
        return problems

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> DeepNMT:
        hidden_size, size = config.hidden_size, config.embedding_size
        normalize, dropout = config.layer_norm, config.dropout
        make_cell = cell_maker(config, "decoder")
        encoder = DeepEncoder(
            cell_maker(config, "encoder"),
            size,
            output_size=hidden_size,
            layers=config.encoder_layers,
            direction=config.encoder_direction,
            context_aware=config.context_aware_encoder,
            layer_norm=normalize,
            dropout=dropout,
        )
        layers: list[DecoderLayer] = []
        for index in range(config.decoder_layers):
            if config.deep_attention or index == 0:
                heads = config.attention_heads
                rnn = AttentionRNN(make_cell, size, hidden_size, heads=heads, layer_norm=normalize)
                layers.append(AttendingLayer(rnn))
            else:
                kind = ContextLayer if config.context_aware_encoder else ConcatenatingLayer
                layers.append(kind(make_cell, size, hidden_size))
        decoder = DeepDecoder(
            layers, hidden_size=hidden_size, embedding_size=size, layer_norm=normalize, dropout=dropout
        )
        readout = Readout()
        if config.deep_output:
            readout = TanhReadout([size, hidden_size], size, joined=True, layer_norm=normalize, dropout=dropout)
        return cls(
            Embeddings(source_vocab_size, target_vocab_size, size=size, tie=config.tie_embeddings),
            encoder=encoder,
            initial_states=InitialStates(encoder.last_size, decoder.state_sizes, tanh=False, layer_norm=normalize),
            decoder=decoder,
            readout=readout,
            dropout=dropout,
            init_range=initializer(config),
        )


_UNUSED: dict[str, tuple[bool, str]] = {
    "context_aware_encoder": (True, "each encoder layer above the first reads the words and the layer below"),
    "deep_attention": (False, "its decoder attends in each of its levels anyway"),
    "deep_output": (True, "it has a tanh layer of its own before the softmax"),
}
"""Keys of other architectures: the default to leave, and what is used instead."""


@MODELS.register("rnnsearch_deepatt")
class RNNSearchDeepAtt(Seq2Seq):
    """Deep attention (Zhang et al., IEEE TPAMI 2018): `decoder_layers` levels of attention and cell in each step.

    The encoder has `encoder_layers` layers that run backward and forward in turn, above a forward layer that reads the
    words alone: one layer more than the key says, as Zero counts them. The decoder starts from a linear map of the
    encoder's last state; the readout sees its state, the contexts of all levels and the word before.
    """

    variable_scope = "nmt"
    encoder: Alternating
    decoder: ShallowDecoder

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        problems = check_recurrent_dropout(config)
        problems += [
            (key, f"has no effect with 'rnnsearch_deepatt': {instead}. Leave it {str(default).lower()}, the default.")
            for key, (default, instead) in _UNUSED.items()
            if getattr(config, key) != default
        ]
        if config.encoder_direction != "both":
            problems.append(("encoder_direction", "'rnnsearch_deepatt' reads the words in both directions"))
        width = config.encoder_hidden_size or config.hidden_size
        if width % config.attention_heads:
            problems.append(("attention_heads", f"{config.attention_heads} must divide the encoder's width ({width})"))
        return problems

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> RNNSearchDeepAtt:
        size = config.embedding_size
        encoder = Alternating(cell_maker(config, "encoder"), size, layers=config.encoder_layers)
        rnn = DeepAttentionRNN(
            cell_maker(config, "decoder"),
            size,
            encoder.output_size,
            levels=config.decoder_layers,
            heads=config.attention_heads,
            layer_norm=config.layer_norm,
        )
        sizes = source_vocab_size, target_vocab_size
        return _of_one_layer(cls, config, sizes, encoder=encoder, rnn=rnn, tanh=False, joined=True)


def _of_one_layer(
    kind: type[Model],
    config: ModelConfig,
    vocab_sizes: tuple[int, int],
    *,
    encoder: Encoder,
    rnn: AttendingRNN,
    tanh: bool,
    joined: bool,
) -> Model:
    """A model whose decoder is one layer that attends; its readout sees state, contexts and the word before.

    `tanh`: of the initial state. `joined`: see `TanhReadout`.
    """
    size, normalize, dropout = config.embedding_size, config.layer_norm, config.dropout
    decoder = ShallowDecoder(AttendingLayer(rnn))
    pieces = [config.hidden_size, len(rnn.levels) * encoder.output_size, size]
    return kind(
        Embeddings(*vocab_sizes, size=size, tie=config.tie_embeddings),
        encoder=encoder,
        initial_states=InitialStates(encoder.last_size, decoder.state_sizes, tanh=tanh, layer_norm=normalize),
        decoder=decoder,
        readout=TanhReadout(pieces, size, joined=joined, layer_norm=normalize, dropout=dropout),
        dropout=dropout,
        init_range=initializer(config),
    )
