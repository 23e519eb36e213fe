"""What a Marian model is made of by its settings: sizes, layers, the names of its weights; or why it is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from nmt.errors import CheckpointError, printable, shown
from nmt.limits import DEEPEST, WIDEST
from nmt.marian.arrays import MarianWeights

Activation = Literal["relu", "swish", "gelu"]
QUANTIZED_INPUT = "_QuantMultA"
"""The end of the names of multipliers for the inputs of 8-bit products, which nmt computes anew."""
_NO: tuple[Any, ...] = (False, 0, "", [], None)
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-preprocess": ("", "d"),
    "transformer-postprocess": ("dan", "an"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-postprocess-top": ("", "d"),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-activation": ("relu", "swish", "gelu"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    **dict.fromkeys(
        (
            "transformer-train-positions",
            "transformer-train-position-embeddings",
            "transformer-tied-layers",
            "transformer-no-projection",
            "transformer-no-bias",
            "transformer-no-affine",
            "transformer-pool",
            "output-omit-bias",
            "layer-normalization",
            "lemma-dim-emb",
            "factors-combine",
            "right-left",
            "ulr",
            "input-types",
        ),
        _NO,
    ),
}
"""Settings with the values that nmt computes; those that a file lacks have the first one."""
_USUAL_HEADS = 8
_LISTED = 3
"""Names that a message lists."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model."""

    width: int
    """E, of embeddings and blocks"""
    heads: int
    encoder_layers: int
    decoder_layers: int
    encoder_feed_forward: int
    decoder_feed_forward: int
    activation: Activation
    unit: bool
    """Whether an SSRU mixes the words of the target, instead of self-attention"""
    projection: bool
    """Whether a linear map follows the SSRU"""
    source_size: int
    """V, pieces of the source"""
    target_size: int
    tables: tuple[str, str, str]
    """Names of the embeddings of source and target, and of the output layer"""


def shape_of(weights: MarianWeights) -> Shape:
    """The sizes, compared with all weights. Raises CheckpointError for a model that nmt does not compute."""
    try:
        _check_settings(weights.settings)
        shape = _shape(weights)
        expected = dict(_expected(shape))
        _check_names(weights.values, expected)
    except ValueError as error:
        raise CheckpointError(f"{weights.path}: {error}") from error
    return shape


def _check_settings(settings: Mapping[str, Any]) -> None:
    for key, allowed in _MUST_BE.items():
        value = settings.get(key, allowed[0])
        if value not in allowed:
            listed = ", ".join(repr(one) for one in dict.fromkeys(map(str, allowed)))
            raise ValueError(f"{key}: {shown(value)} is not computed. Allowed: {listed}.")
    if settings.get("transformer-decoder-autoreg") == "rnn" and settings.get("dec-cell", "ssru") != "ssru":
        raise ValueError(f"dec-cell: {shown(settings['dec-cell'])} is not computed. Allowed: 'ssru'.")


def _whole(settings: Mapping[str, Any], key: str, most: int, default: int | None = None) -> int:
    value = settings.get(key, default)
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{key}: {shown(value)} is not allowed. Allowed: 1 to {most:,}.")
    return value


def _shape(weights: MarianWeights) -> Shape:
    settings, values = weights.settings, weights.values
    width = _whole(settings, "dim-emb", WIDEST)
    heads = _whole(settings, "transformer-heads", WIDEST, _USUAL_HEADS)
    if width % heads:
        raise ValueError(f"transformer-heads: {heads} does not divide dim-emb ({width})")
    source, target = ("Wemb", "Wemb") if "Wemb" in values else ("encoder_Wemb", "decoder_Wemb")
    output = next((n for n in ("decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt") if n in values), target)
    for name in (source, target):
        if name not in values:
            raise ValueError(f"{name} is missing")
        if len(values[name].shape) != 2:
            raise ValueError(f"{name}: has the shape {values[name].shape}, and a table has two dimensions")
    return Shape(
        width=width,
        heads=heads,
        encoder_layers=_whole(settings, "enc-depth", DEEPEST),
        decoder_layers=_whole(settings, "dec-depth", DEEPEST),
        encoder_feed_forward=_inner(values, "encoder"),
        decoder_feed_forward=_inner(values, "decoder"),
        activation=settings.get("transformer-ffn-activation", "relu"),
        unit=settings.get("transformer-decoder-autoreg", "self-attention") == "rnn",
        projection=bool(settings.get("transformer-rnn-projection", False)),
        source_size=values[source].shape[0],
        target_size=values[target].shape[0],
        tables=(source, target, output),
    )


def _inner(values: Mapping[str, Any], side: str) -> int:
    """The width of the feed-forward layers; the setting may be 0 for "as the encoder's", the matrix is what counts."""
    name = f"{side}_l1_ffn_W1"
    if name not in values or len(values[name].shape) != 2:
        raise ValueError(f"{name} is missing or no matrix")
    return int(values[name].shape[1])


class Part(NamedTuple):
    """A linear map, possibly of several of Marian's one below the other, or a norm; by the names of its weights."""

    weight: str
    """In nmt [M, K]; of a norm the scale [M]"""
    bias: str
    """In nmt [M]; of a norm the offset"""
    theirs: tuple[tuple[str, str | None], ...]
    """In Marian, matrix [K, M] and bias [1, M], if there is one; of a norm scale and offset, [1, M] both"""
    inputs: int
    """K; 0 for a norm"""
    outputs: int
    """M of each of Marian's"""


def parts_of(shape: Shape) -> Iterator[Part]:
    """All but the tables and the bias of the logits: what both directions of conversion, and the check, go by."""
    width = shape.width

    def linear(ours: str, *names: str, inputs: int = width, outputs: int = width) -> Part:
        theirs = tuple((name.format("W"), name.format("b")) for name in names)
        return Part(f"{ours}.weights.0", f"{ours}.bias", theirs, inputs, outputs)

    def norm(ours: str, name: str) -> Part:
        return Part(f"{ours}.scale", f"{ours}.offset", ((f"{name}_ln_scale", f"{name}_ln_bias"),), 0, width)

    sides = (
        ("encoder", shape.encoder_layers, shape.encoder_feed_forward),
        ("decoder", shape.decoder_layers, shape.decoder_feed_forward),
    )
    for side, layers, inner in sides:
        for i in range(layers):
            name, block = f"{side}_l{i + 1}", f"{side}.blocks.{i}"
            if side == "decoder" and shape.unit:
                cell = f"{block}.mixing.cell"
                gate, candidate = (f"{name}_rnn_Wf", f"{name}_rnn_bf"), (f"{name}_rnn_W", None)
                yield Part(f"{cell}.input_weight", f"{cell}.forget_gate_bias", (gate, candidate), width, width)
                yield norm(f"{block}.norm", f"{name}_rnn_ffn")
                if shape.projection:
                    yield linear(f"{block}.mixing.out", f"{name}_rnn_{{}}o")
            else:
                mixing = f"{block}.mixing" if side == "encoder" else f"{block}.mixing.attention"
                yield linear(f"{mixing}.inputs", *(f"{name}_self_{{}}{part}" for part in "qkv"))
                yield linear(f"{mixing}.out", f"{name}_self_{{}}o")
                yield norm(f"{block}.norm", f"{name}_self_Wo")
            if side == "decoder":
                yield linear(f"{block}.attention.query", f"{name}_context_{{}}q")
                yield linear(f"{block}.attention.source", f"{name}_context_{{}}k", f"{name}_context_{{}}v")
                yield linear(f"{block}.attention.out", f"{name}_context_{{}}o")
                yield norm(f"{block}.query_norm", f"{name}_context_Wo")
            yield linear(f"{block}.feed_forward.up", f"{name}_ffn_{{}}1", outputs=inner)
            yield linear(f"{block}.feed_forward.down", f"{name}_ffn_{{}}2", inputs=inner)
            yield norm(f"{block}.feed_forward.norm", f"{name}_ffn_ffn")


def _expected(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names and shapes of all weights."""
    width, (source, target, output) = shape.width, shape.tables
    yield source, (shape.source_size, width)
    yield target, (shape.target_size, width)
    yield output, (width, shape.target_size) if output.endswith("_W") else (shape.target_size, width)
    yield "decoder_ff_logit_out_b", (1, shape.target_size)
    for part in parts_of(shape):
        for weight, bias in part.theirs:
            yield weight, (part.inputs or 1, part.outputs)
            if bias is not None:
                yield bias, (1, part.outputs)


def _check_names(values: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]]) -> None:
    missing = [name for name in expected if name not in values]
    left = [name for name in values if name not in expected and not name.endswith(QUANTIZED_INPUT)]
    for names, what in ((missing, "missing"), (left, "left over, and would have no effect")):
        if names:
            more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            verb = "is" if len(names) == 1 else "are"
            raise ValueError(f"{', '.join(map(printable, names[:_LISTED]))}{more} {verb} {what}")
    for name, shape in expected.items():
        if tuple(values[name].shape) != shape:
            raise ValueError(f"{name}: has the shape {tuple(values[name].shape)}, and the settings ask for {shape}")
