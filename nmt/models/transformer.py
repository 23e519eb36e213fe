"""transformer: residual blocks whose words are mixed by a recurrent unit or by self-attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from torch import nn

from nmt.limits import DEEPEST, WIDEST
from nmt.models import blocks
from nmt.models.base import Outline, Seq2Seq
from nmt.models.build import cell_maker, check_dropouts, check_recurrent_dropout, within
from nmt.models.encoder import MakeCell
from nmt.registry import INITIALIZERS, MODELS

if TYPE_CHECKING:
    from nmt.config.schema import ModelConfig, Side


Number = TypeVar("Number", int, float)


@dataclass(frozen=True, kw_only=True)
class TransformerOptions:
    """Options of the architecture `transformer`. The width of its blocks is `model.embedding_size`."""

    form: Literal["marian", "opus_mt"] | None = None
    """Other defaults below: `marian`, Firefox's students (with `cell: ssru`), or `opus_mt`, OPUS-MT's Transformer."""
    encoder_layers: int = 3
    decoder_layers: int = 2
    """Blocks of each side."""
    encoder_mixing: Literal["unit", "attention"] = "unit"
    decoder_mixing: Literal["unit", "attention"] = "unit"
    """What mixes the words of a side: the `unit`, or self-`attention`."""
    encoder_unit_size: int | None = None
    """Width of states, in each direction; `null`: `embedding_size` for both directions together."""
    decoder_unit_size: int | None = None
    """The same in the decoder; `null`: `embedding_size`."""
    encoder_feed_forward: int | None = None
    """Width of feed-forward layers; `null`: twice `embedding_size`."""
    decoder_feed_forward: int | None = None
    """The same in the decoder; 0: none, as in fast students."""
    decoder_projection: bool = True
    """Whether a linear map follows the unit of the decoder."""
    feed_forward: blocks.Activation = "relu"
    """Feed-forward layers: `relu`, `swish` (x times its sigmoid), `gelu`, or `gated` (SwiGLU, a third matrix)."""
    heads: int = 4
    """Heads of every attention; they share `embedding_size`."""
    positions: Literal["rotary", "sinusoidal", "none"] = "rotary"
    """How self-attention knows places: `rotary` queries and keys, `sinusoidal` embeddings, or `none`."""
    sinusoids: blocks.Sinusoids = "vaswani"
    """Rates 10000^(-k/n), n = `embedding_size` / 2 (`vaswani`); with n - 1 (`marian`)."""
    norm: Literal["layer", "rms"] = "layer"
    """Norm of each part: `layer`, or `rms` (no mean, no offset)."""
    norm_position: Literal["before", "after"] = "before"
    """Normalise the input of each part (`before`), or the sum of a part and its input (`after`)."""
    norm_epsilon: float = 1e-6
    """Added to variances."""
    start_vector: bool = True
    """Add a learned vector to all target words, which is the decoder's first input."""
    embedding_bias: bool = True
    output_bias: bool = False
    """Whether embeddings, and the output layer, have a bias."""
    residual_dropout: float | None = None
    feed_forward_dropout: float | None = None
    embedding_dropout: float | None = None
    """Dropout of what blocks add to their sum, inside feed-forward layers, and of embeddings; `null`:
    `model.dropout`."""
    attention_dropout: float = 0.0
    """Dropout of attention weights."""
    word_dropout: float = 0.0
    """Share of the words whose whole embedding is zero in training."""

    def __post_init__(self) -> None:
        for name in ("encoder_layers", "decoder_layers"):
            within(name, getattr(self, name), 1, DEEPEST)
        for name in ("encoder_unit_size", "decoder_unit_size", "encoder_feed_forward", "heads"):
            within(name, getattr(self, name), 1, WIDEST)
        within("decoder_feed_forward", self.decoder_feed_forward, 0, WIDEST)
        if not 0 < self.norm_epsilon <= 1:
            raise ValueError(f"norm_epsilon: {self.norm_epsilon} must be above 0 and at most 1")
        check_dropouts(self)

    @property
    def mixing(self) -> dict[Side, Literal["unit", "attention"]]:
        """That of each side."""
        return {"encoder": self.encoder_mixing, "decoder": self.decoder_mixing}

    @classmethod
    def completed(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options with what their form has; `nmt.config` calls it before it checks them."""
        form = given.get("form")
        return {**FORMS.get(form, {}), **given} if isinstance(form, str) else given


_OTHERS: Final = {
    "encoder_mixing": "attention",
    "decoder_projection": False,
    "heads": 8,
    "positions": "sinusoidal",
    "norm_position": "after",
    "start_vector": False,
    "embedding_bias": False,
    "output_bias": True,
}
FORMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "marian": {**_OTHERS, "encoder_layers": 6, "sinusoids": "marian"},
    "opus_mt": {
        **_OTHERS,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "decoder_mixing": "attention",
        "norm_epsilon": 1e-5,
        "feed_forward": "swish",
    },
}
"""What models of other systems have, where `architecture_options` do not say otherwise."""


_ELSEWHERE = {
    "hidden_size": "give encoder_unit_size and decoder_unit_size in architecture_options",
    "encoder_hidden_size": "give encoder_unit_size in architecture_options",
    "encoder_layers": "give encoder_layers in architecture_options",
    "decoder_layers": "give decoder_layers in architecture_options",
    "attention_heads": "give heads in architecture_options",
    "deep_attention": "each block of the decoder attends",
    "initializer": "matrices start from `glorot`, embeddings from a normal distribution",
    "init_range": "matrices start from `glorot`, embeddings from a normal distribution",
}
"""Keys of the section `model` that the architecture does not read, and what to do instead."""


@MODELS.register("transformer")
class Transformer(Seq2Seq):
    """Residual blocks of a recurrent unit or self-attention, dot-product attention, and feed-forward layers.

    With attention in encoder and decoder it is the Transformer of Vaswani et al. (NIPS 2017), by default with norms
    before each part (Xiong et al., ICML 2020) and rotary positions. With units there is no attention inside the
    recurrence, so training is parallel over time except for the scan.
    """

    Options = TransformerOptions
    int8_encoder = True
    unread = ("layer_norm", "layer_norm_scale", "context_aware_encoder", "deep_output")
    """Keys of the section `model` that have no effect, of which a warning informs."""
    encoder: blocks.BlockEncoder
    decoder: blocks.BlockDecoder

    @classmethod
    def check(cls, config: ModelConfig) -> list[tuple[str, str]]:
        found, usual = list[tuple[str, str]](), {field.name: field.default for field in fields(type(config))}
        for key, instead in _ELSEWHERE.items():
            given, default = getattr(config, key), usual[key]
            if given != getattr(default, "default", default):
                found.append((key, f"{given!r} has no effect with 'transformer': {instead}"))
        options, width = TransformerOptions(**config.architecture_options), config.embedding_size
        attends = "attention" in options.mixing.values()

        def refuse(option: str, message: str) -> None:
            found.append((f"architecture_options.{option}", message))

        if options.positions == "sinusoidal" and (width % 2 or width < 4):
            refuse("positions", f"sinusoids need an even embedding_size of at least 4, not {width}")
        if options.positions == "none" and attends:
            refuse("positions", "'none' leaves self-attention without the order of words")
        unit_size = options.decoder_unit_size or width
        if not options.decoder_projection and options.decoder_mixing == "unit" and unit_size != width:
            refuse("decoder_unit_size", f"without decoder_projection it must be embedding_size ({width})")
        if width % options.heads:
            refuse("heads", f"{options.heads} must divide embedding_size ({width})")
        elif options.positions == "rotary" and attends and width // options.heads % 2:
            odd = f"{options.heads} heads of embedding_size ({width}) have an odd width"
            refuse("heads", f"{odd}; rotary positions need pairs")
        for side, mixing in options.mixing.items():
            without = f"has no effect with {side}_mixing: attention"
            if mixing == "attention" and getattr(options, f"{side}_unit_size") is not None:
                refuse(f"{side}_unit_size", f"{without}, which has no recurrent states")
            if mixing == "attention" and getattr(config, f"{side}_cell") is not None:
                found.append((f"{side}_cell", without))
        return found + check_recurrent_dropout(config)

    @classmethod
    def without_cell(cls, config: ModelConfig) -> str | None:
        """Why `model.cell` has no effect; None where a side of the model may have that unit."""
        mixing = TransformerOptions(**config.architecture_options).mixing
        sides = [side for side, kind in mixing.items() if kind != "attention"]
        if not sides:
            return "attention mixes the words of both sides"
        if len(sides) == 1 and getattr(config, f"{sides[0]}_cell") not in (None, config.cell):
            return f"attention mixes the words of one side, and {sides[0]}_cell is another unit"
        return None

    @classmethod
    def outline(cls, config: ModelConfig) -> Outline:
        options = TransformerOptions(**config.architecture_options)
        if options.encoder_mixing == options.decoder_mixing:
            words = config.describe_units() if options.encoder_mixing == "unit" else "self-attention"
        else:
            words = ", ".join(
                f"{side} {config.unit_of(side) if kind == 'unit' else 'self-attention'}"
                for side, kind in options.mixing.items()
            )
        return Outline(options.encoder_layers, options.decoder_layers, config.embedding_size, words)

    @classmethod
    def from_config(cls, config: ModelConfig, source_vocab_size: int, target_vocab_size: int) -> Transformer:
        options, size = TransformerOptions(**config.architecture_options), config.embedding_size
        norm = blocks.Norm(options.norm, options.norm_epsilon, options.norm_position == "after")
        residual = _or(options.residual_dropout, config.dropout)
        heads, dropout, rotary = options.heads, options.attention_dropout, options.positions == "rotary"

        def feed_forward(width: int | None) -> blocks.FeedForward:
            return blocks.FeedForward(
                size,
                _or(width, 2 * size),
                activation=options.feed_forward,
                norm=norm,
                dropout=_or(options.feed_forward_dropout, config.dropout),
                residual_dropout=residual,
            )

        def unit(side: Side, width: int) -> MakeCell:
            return cell_maker(config, side, width=width, layer_norm=False)

        def encoder_block() -> blocks.EncoderBlock:
            mixing: blocks.SourceMixing | blocks.SelfAttention
            forward = config.encoder_direction == "forward"
            if options.encoder_mixing == "unit":
                width = _or(options.encoder_unit_size, size if forward else max(1, size // 2))
                mixing = blocks.SourceMixing(unit("encoder", width), size, forward=forward)
            else:
                mixing = blocks.SelfAttention(size, heads=heads, dropout=dropout, rotary=rotary, causal=forward)
            above = feed_forward(options.encoder_feed_forward)
            return blocks.EncoderBlock(mixing, above, size=size, norm=norm, dropout=residual)

        def decoder_block() -> blocks.DecoderBlock:
            mixing: blocks.UnitMixing | blocks.AttentionMixing
            if options.decoder_mixing == "unit":
                make = unit("decoder", _or(options.decoder_unit_size, size))
                mixing = blocks.UnitMixing(make, size, projection=options.decoder_projection)
            else:
                mixing = blocks.AttentionMixing(size, heads=heads, dropout=dropout, rotary=rotary)
            source = blocks.SourceAttention(size, size, heads=heads, dropout=dropout)
            above = None if options.decoder_feed_forward == 0 else feed_forward(options.decoder_feed_forward)
            return blocks.DecoderBlock(mixing, source, above, size=size, norm=norm, dropout=residual)

        places = options.sinusoids if options.positions == "sinusoidal" else None
        decoder = blocks.BlockDecoder(
            [decoder_block() for _ in range(options.decoder_layers)],
            words=blocks.Words(size, options.word_dropout, start=options.start_vector, sinusoids=places),
        )
        model = cls(
            blocks.BlockEmbeddings(
                source_vocab_size,
                target_vocab_size,
                size=size,
                tie=config.tie_embeddings,
                bias=options.embedding_bias,
                output_bias=options.output_bias,
            ),
            encoder=blocks.BlockEncoder(
                [encoder_block() for _ in range(options.encoder_layers)],
                words=blocks.Words(size, options.word_dropout, sinusoids=places),
                size=size,
                norm=norm,
            ),
            initial_states=blocks.ZeroStates(decoder.state_sizes),
            decoder=decoder,
            readout=blocks.NormReadout(size, norm, output_bias=options.output_bias),
            dropout=_or(options.embedding_dropout, config.dropout),
            init_range=INITIALIZERS.get("glorot")(0.0),
        )
        # N(0, 1/E), so that times sqrt(E) they have variance 1
        for table in (model.embeddings.source, model.embeddings.target, model.embeddings.softmax):
            if table is not None:
                nn.init.normal_(table, std=size**-0.5)
        nn.init.zeros_(model.embeddings.bias)
        return model


def _or(value: Number | None, usual: Number) -> Number:
    """A value, or what `null` stands for."""
    return usual if value is None else value
