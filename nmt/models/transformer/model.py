"""transformer: residual blocks whose words are mixed by a recurrent unit or by self-attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from nmt.models.base import Outline, Seq2Seq
from nmt.models.build import cell_maker, check_recurrent_dropout
from nmt.models.embeddings import Embeddings
from nmt.models.transformer.heads import SelfAttention, SourceAttention
from nmt.models.transformer.mixing import AttentionMixing, BothWays, Mixing, UnitMixing
from nmt.models.transformer.norm import FeedForward
from nmt.models.transformer.options import (
    Dropouts,
    Sizes,
    TransformerOptions,
    dropouts_of,
    problems_of,
    sizes_of,
    without_cell,
)
from nmt.models.transformer.sides import (
    BlockDecoder,
    BlockEncoder,
    DecoderBlock,
    EncoderBlock,
    NormReadout,
    ZeroStates,
)
from nmt.registry import INITIALIZERS, MODELS
from nmt.units import SIDES, describe_units, unit_of

if TYPE_CHECKING:
    from nmt.config.schema import ModelConfig


@MODELS.register("transformer")
class Transformer(Seq2Seq):
    """Pre-norm residual blocks of a recurrent unit or self-attention, dot-product attention, and feed-forward layers.

    With attention in encoder and decoder it is the Transformer of Vaswani et al. (NIPS 2017) with norms before each
    part (Xiong et al., ICML 2020) and rotary positions. With units there is no attention inside the recurrence, so
    training is parallel over time except for the scan.
    """

    Options = TransformerOptions
    int8_encoder = True
    unread = ("layer_norm", "layer_norm_scale", "context_aware_encoder", "deep_output")
    """Keys of the section `model` that have no effect, of which a warning informs."""
    encoder: BlockEncoder
    decoder: BlockDecoder

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        """What does not fit together in the section `model`, as (key, message)."""
        return [*problems_of(config), *check_recurrent_dropout(config)]

    @classmethod
    def without_cell(cls, config: ModelConfig) -> str | None:
        """Why `model.cell` has no effect; None where a side of the model may have that unit."""
        return without_cell(config)

    @classmethod
    def outline(cls, config: ModelConfig) -> Outline:
        """Layers, width and what mixes the words of both sides."""
        options = TransformerOptions(**config.architecture_options)
        mixing = {"encoder": options.encoder_mixing, "decoder": options.decoder_mixing}
        if mixing["encoder"] == mixing["decoder"]:
            words = describe_units(config) if options.encoder_mixing == "unit" else "self-attention"
        else:
            words = ", ".join(
                f"{side} {unit_of(config, side) if mixing[side] == 'unit' else 'self-attention'}" for side in SIDES
            )
        return Outline(options.encoder_layers, options.decoder_layers, config.embedding_size, words)

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Transformer:
        """Build the model that the section `model` describes, freshly initialised."""
        options = TransformerOptions(**config.architecture_options)
        dropouts, size = dropouts_of(config), config.embedding_size
        encoder_sizes, decoder_sizes = sizes_of(config, "encoder"), sizes_of(config, "decoder")
        decoder = BlockDecoder(
            [_decoder_block(config, options, decoder_sizes, dropouts) for _ in range(decoder_sizes.layers)],
            size=size,
            word_dropout=dropouts.word,
        )
        model = cls(
            Embeddings(source_vocab_size, target_vocab_size, size=size, tie=config.tie_embeddings),
            encoder=BlockEncoder(
                [_encoder_block(config, options, encoder_sizes, dropouts) for _ in range(encoder_sizes.layers)],
                size=size,
                norm=options.norm,
                word_dropout=dropouts.word,
            ),
            initial_states=ZeroStates(decoder.state_sizes),
            decoder=decoder,
            readout=NormReadout(size, options.norm),
            dropout=dropouts.embedding,
            init_range=INITIALIZERS.get("glorot")(0.0),
        )
        model.start_embeddings()
        return model

    def start_embeddings(self) -> None:
        """Tables from N(0, 1/E), so that times sqrt(E) they have variance 1; their bias from 0."""
        tables = self.embeddings
        for table in (tables.source, tables.target, tables.softmax):
            if table is not None:
                nn.init.normal_(table, std=table.size(1) ** -0.5)
        nn.init.zeros_(tables.bias)


def _encoder_block(config: ModelConfig, options: TransformerOptions, sizes: Sizes, dropouts: Dropouts) -> EncoderBlock:
    size = config.embedding_size
    mixing: BothWays | SelfAttention
    if options.encoder_mixing == "unit":
        mixing = BothWays(cell_maker(config, "encoder", width=sizes.unit, layer_norm=False), size)
    else:
        mixing = SelfAttention(size, heads=options.heads, dropout=dropouts.attention)
    feed_forward = _feed_forward(size, sizes, options, dropouts)
    return EncoderBlock(mixing, feed_forward, size=size, norm=options.norm, dropout=dropouts.residual)


def _decoder_block(config: ModelConfig, options: TransformerOptions, sizes: Sizes, dropouts: Dropouts) -> DecoderBlock:
    size, heads = config.embedding_size, options.heads
    mixing: Mixing
    if options.decoder_mixing == "unit":
        mixing = UnitMixing(cell_maker(config, "decoder", width=sizes.unit, layer_norm=False), size)
    else:
        mixing = AttentionMixing(size, heads=heads, dropout=dropouts.attention)
    return DecoderBlock(
        mixing,
        SourceAttention(size, size, heads=heads, dropout=dropouts.attention),
        _feed_forward(size, sizes, options, dropouts) if sizes.feed_forward else None,
        size=size,
        norm=options.norm,
        dropout=dropouts.residual,
    )


def _feed_forward(size: int, sizes: Sizes, options: TransformerOptions, dropouts: Dropouts) -> FeedForward:
    return FeedForward(
        size,
        sizes.feed_forward,
        activation=options.feed_forward,
        norm=options.norm,
        dropout=dropouts.feed_forward,
        residual_dropout=dropouts.residual,
    )
