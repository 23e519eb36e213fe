"""rnnsearch_deepatt: an encoder of alternating directions and a decoder that attends in several levels each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nmt.models.base import Seq2Seq
from nmt.models.build import cell_maker, check_recurrent_dropout, initializer
from nmt.models.decoder import AttendingLayer, ShallowDecoder
from nmt.models.deep_attention import DeepAttentionRNN
from nmt.models.embeddings import Embeddings
from nmt.models.encoder import Alternating
from nmt.models.readout import InitialStates, TanhReadout
from nmt.registry import MODELS

if TYPE_CHECKING:
    from nmt.config.schema import ModelConfig

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
        """What does not fit together in the section `model`, as (key, message)."""
        problems = check_recurrent_dropout(config)
        problems += [
            (key, f"has no effect with 'rnnsearch_deepatt': {instead}. Leave it {str(default).lower()}, the default.")
            for key, (default, instead) in _UNUSED.items()
            if getattr(config, key) != default
        ]
        width = config.encoder_hidden_size or config.hidden_size
        if width % config.attention_heads:
            problems.append(("attention_heads", f"{config.attention_heads} must divide the encoder's width ({width})"))
        return problems

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> RNNSearchDeepAtt:
        """Build the model that the section `model` describes, freshly initialised."""
        size, normalize, levels = config.embedding_size, config.layer_norm, config.decoder_layers
        encoder = Alternating(cell_maker(config, "encoder"), size, layers=config.encoder_layers)
        memory_size = encoder.output_size
        rnn = DeepAttentionRNN(
            cell_maker(config, "decoder"),
            size,
            memory_size,
            levels=levels,
            heads=config.attention_heads,
            layer_norm=normalize,
        )
        decoder = ShallowDecoder(AttendingLayer(rnn))
        return cls(
            Embeddings(source_vocab_size, target_vocab_size, size=size, tie=config.tie_embeddings),
            encoder=encoder,
            initial_states=InitialStates(encoder.last_size, decoder.state_sizes, tanh=False, layer_norm=normalize),
            decoder=decoder,
            readout=TanhReadout(
                [config.hidden_size, levels * memory_size, size],
                size,
                joined=True,
                layer_norm=normalize,
                dropout=config.dropout,
            ),
            dropout=config.dropout,
            init_range=initializer(config),
        )
