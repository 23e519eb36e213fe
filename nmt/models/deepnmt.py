"""deepnmt: stacked recurrent layers with residual connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.models.base import Seq2Seq
from nmt.models.build import cell_maker, check_recurrent_dropout, initializer
from nmt.models.conditional import AttentionRNN, MakeCell
from nmt.models.decoder import AttendingLayer, ConcatenatingLayer, ContextLayer, DecoderLayer, DeepDecoder
from nmt.models.embeddings import Embeddings
from nmt.models.encoder import DeepEncoder
from nmt.models.readout import InitialStates, Readout, TanhReadout
from nmt.registry import MODELS

if TYPE_CHECKING:
    from nmt.config.schema import ModelConfig


@MODELS.register("deepnmt")
class DeepNMT(Seq2Seq):
    """Deep encoder and decoder (Zhang and Sennrich, ACL 2019, section 4).

    The first encoder layer is bidirectional, those above run forward. The first decoder layer (with
    deep attention each of them) attends to the source; the others read its context, in a second cell if the encoder is
    context-aware, else in addition to their input.
    """

    variable_scope = "nmt"
    encoder: DeepEncoder
    decoder: DeepDecoder

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        """What does not fit together in the section `model`, as (key, message)."""
        problems = check_recurrent_dropout(config)
        if config.hidden_size % config.attention_heads:
            message = f"{config.attention_heads} must divide hidden_size ({config.hidden_size})"
            problems.append(("attention_heads", message))
        return problems

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> DeepNMT:
        """Build the model that the section `model` describes, freshly initialised."""
        hidden_size, size = config.hidden_size, config.embedding_size
        normalize, dropout = config.layer_norm, config.dropout
        make_cell = cell_maker(config, "decoder")
        encoder = DeepEncoder(
            cell_maker(config, "encoder"),
            size,
            output_size=hidden_size,
            layers=config.encoder_layers,
            context_aware=config.context_aware_encoder,
            layer_norm=normalize,
            dropout=dropout,
        )
        attends = [config.deep_attention or index == 0 for index in range(config.decoder_layers)]
        layers = [_decoder_layer(config, make_cell, attends=own) for own in attends]
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


def _decoder_layer(config: ModelConfig, make_cell: MakeCell, *, attends: bool) -> DecoderLayer:
    inputs, memory = config.embedding_size, config.hidden_size
    if attends:
        heads = config.attention_heads
        return AttendingLayer(AttentionRNN(make_cell, inputs, memory, heads=heads, layer_norm=config.layer_norm))
    if config.context_aware_encoder:
        return ContextLayer(make_cell, inputs, memory)
    return ConcatenatingLayer(make_cell, inputs, memory)
