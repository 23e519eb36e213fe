"""Models of nmt as Marian's files, which Firefox's engine and Marian read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
import yaml
from torch import Tensor, nn

from nmt.data import EOS, PAD, Tokenizer
from nmt.data.sentencepiece import SentencePieceTokenizer, has_case_marks
from nmt.data.text import find_pairs, read_pairs
from nmt.errors import ConfigError, DataError
from nmt.files import write_new
from nmt.interop.export import is_replaced, whole_directory
from nmt.interop.model_dir import LoadedModel, load_model
from nmt.interop.run_layout import WEIGHTS
from nmt.interop.weights_file import read_metadata
from nmt.marian import pieces
from nmt.marian.arrays import Quantized, Value, write_bin, write_npz
from nmt.marian.convert import SETTINGS_OF
from nmt.marian.pieces import Piece
from nmt.marian.shape import QUANTIZED_INPUT, Shape, parts_of
from nmt.marian.shortlists import Lexicon, write_lexicon
from nmt.models.blocks import BlockDecoder, BlockEncoder, UnitMixing
from nmt.models.parts import Linear
from nmt.models.transformer import Transformer, TransformerOptions
from nmt.search.shortlist import Shortlist, load_shortlist

FREQUENT: Final = 50
"""Target ids that a shortlist of Marian allows in each sentence."""
TABLE: Final = "Wemb"
LARGEST: Final = 127
_BATCH: Final = 32
_DEVIATIONS: Final = 1.1
"""Standard deviations above the mean of the largest inputs of batches up to which 8 bits reach, as Marian has it."""
_MUST_BE: Final = {
    "form": ("marian",),
    "positions": ("sinusoidal",),
    "sinusoids": ("marian",),
    "norm": ("layer",),
    "norm_position": ("after",),
    "start_vector": (False,),
    "embedding_bias": (False,),
    "output_bias": (True,),
    "encoder_mixing": ("attention",),
    "decoder_projection": (False,),
    "feed_forward": ("relu", "swish"),
    "norm_epsilon": (1e-6,),
}
"""Options of the architecture whose models Marian computes."""


class Exported(NamedTuple):
    """What was written."""

    files: list[str]
    notes: list[str]


def to_marian(
    model: str | Path,
    output: Path,
    *,
    checkpoint: str | int = "best",
    plugins: Sequence[str] = (),
    shortlist: str | Path | None = None,
    dev: str | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write the folder `output` with a model for Marian and for Firefox's engine.

    Args:
        model: as for `load_model`, with `checkpoint` and `plugins`; a `transformer` with `form: marian` and one table.
        shortlist: a file of nmt-shortlist; by default that of the configuration.
        dev: prefix of the text whose activations the 8-bit file is made for; by default `data.dev`.
        overwrite: replace a folder of this kind.

    Raises:
        ConfigError: by its key, what Marian does not compute.
        CheckpointError: `output` is there and not to be replaced, or the model cannot be read.
        DataError: text or shortlist cannot be read.
    """
    what = "folders of to-marian"
    replaces = is_replaced(output, model=Path(model), overwrite=overwrite, is_one=_is_ours, what=what)
    loaded = load_model(model, checkpoint=checkpoint, plugins=plugins)
    _check(loaded)
    tokenizer = loaded.tokenizer
    assert isinstance(tokenizer, SentencePieceTokenizer)
    vocabulary, ids = _vocabulary(tokenizer)
    shape = _shape(loaded, len(ids))
    values, settings = _arrays(loaded, shape, ids), _settings(loaded, shape)
    alphas, notes = _alphas(loaded, dev)
    decoding = loaded.config.decoding
    if decoding.length_normalization != "power" and decoding.length_penalty:
        notes.append("normalize of config.yml is decoding.length_penalty, but Marian divides by length**normalize")
    if decoding.max_length_offset:
        notes.append("decoding.max_length_offset has no counterpart in config.yml, which has no max-length-factor")
    named = shortlist or decoding.shortlist
    config: dict[str, Any] = {
        "relative-paths": True,
        "models": ["model.intgemm.alphas.bin" if alphas else "model.fp32.bin"],
        "vocabs": ["vocab.spm", "vocab.spm"],
        "beam-size": decoding.beam_size,
        "normalize": decoding.length_penalty,
        **({} if decoding.max_length_offset else {"max-length-factor": decoding.max_length_factor}),
        "word-penalty": 0,
        "max-length-break": 128,
        "mini-batch-words": 1024,
        "workspace": 128,
        "skip-cost": True,
    }
    with whole_directory(output, replace=replaces) as folder:
        write_npz(folder / "model.npz", values, settings)
        write_bin(folder / "model.fp32.bin", values, settings)
        write_new(folder / "vocab.spm", vocabulary)
        files = ["model.npz", "model.fp32.bin", "vocab.spm"]
        if alphas:
            write_bin(folder / "model.intgemm.alphas.bin", quantized(values, alphas), settings)
            files.append("model.intgemm.alphas.bin")
            config["gemm-precision"] = "int8shiftAlphaAll"
        if named is None:
            notes.append("no shortlist: nmt-shortlist makes one, --shortlist names it; slimt needs one")
        else:
            lexicon = _lexicon(load_shortlist(named, tokenizer), ids)
            name = f"lex.{FREQUENT}.{lexicon.best}.s2t.bin"
            write_lexicon(folder / name, lexicon)
            config["shortlist"] = [name, False]
            files.append(name)
        write_new(folder / "config.yml", yaml.safe_dump(config, sort_keys=False).encode())
        files.append("config.yml")
    return Exported(files, notes)


def _is_ours(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("model.npz", "model.fp32.bin", "vocab.spm", "config.yml"))


def _check(loaded: LoadedModel) -> None:
    """Raise ConfigError, naming the key, for what Marian or Firefox's engine does not compute."""
    config, where = loaded.config, loaded.path
    if type(loaded.model) is not Transformer:
        found = config.model.architecture
        raise ConfigError(f"{where}: model.architecture: '{found}' has no counterpart in Marian. Allowed: transformer.")
    options = TransformerOptions(**config.model.architecture_options)
    for key, allowed in _MUST_BE.items():
        if (value := getattr(options, key)) not in allowed:
            words = ", ".join(map(str, allowed))
            place = f"model.architecture_options.{key}"
            raise ConfigError(f"{where}: {place}: {value} has no counterpart in Marian. Allowed: {words}.")
    if config.model.encoder_direction != "both":
        raise ConfigError(f"{where}: model.encoder_direction: forward has no counterpart in Marian. Allowed: both.")
    if options.decoder_feed_forward == 0:
        raise ConfigError(f"{where}: model.architecture_options.decoder_feed_forward: 0 has no counterpart in Marian")
    if options.decoder_mixing == "unit" and (config.model.decoder_cell or config.model.cell) != "ssru":
        raise ConfigError(f"{where}: model.cell: Marian has only ssru")
    if config.model.tie_embeddings != "all":
        raise ConfigError(f"{where}: model.tie_embeddings: Firefox's engine reads only shared tables. Allowed: all.")
    if not isinstance(loaded.tokenizer, SentencePieceTokenizer) or not loaded.tokenizer.options.joint:
        raise ConfigError(f"{where}: data.tokenizer: Marian needs one SentencePiece model for both languages")
    if has_case_marks(loaded.tokenizer.models[0]):
        raise ConfigError(f"{where}: data.tokenizer_options.case: markup is not known to Marian. Allowed: null.")


def _vocabulary(tokenizer: SentencePieceTokenizer) -> tuple[bytes, list[int]]:
    """The SentencePiece model with Marian's ids, </s> 0 and <unk> 1, and nmt's id of each of them."""
    model = tokenizer.models[0]
    own = pieces.pieces_of(model)
    found = [Piece("</s>", 0.0, pieces.CONTROL), Piece("<unk>", 0.0, pieces.UNKNOWN), *own[3:]]
    return pieces.with_pieces(model, found, unk=1, eos=0), [2, 1, *range(3, len(own))]


def _shape(loaded: LoadedModel, size: int) -> Shape:
    """The sizes of the model, in a vocabulary of `size` pieces."""
    config = loaded.config.model
    options = TransformerOptions(**config.architecture_options)
    usual = 2 * config.embedding_size
    return Shape(
        width=config.embedding_size,
        heads=options.heads,
        encoder_layers=options.encoder_layers,
        decoder_layers=options.decoder_layers,
        encoder_feed_forward=options.encoder_feed_forward or usual,
        decoder_feed_forward=options.decoder_feed_forward or usual,
        activation="swish" if options.feed_forward == "swish" else "relu",
        unit=options.decoder_mixing == "unit",
        projection=options.decoder_projection,
        source_size=size,
        target_size=size,
        tables=(TABLE, TABLE, TABLE),
    )


def _arrays(loaded: LoadedModel, shape: Shape, ids: Sequence[int]) -> dict[str, np.ndarray]:
    """The weights by Marian's names; row i of the table is that of nmt's id `ids[i]`."""
    state = {name: value.detach().float().numpy() for name, value in loaded.model.state_dict().items()}
    rows = list(ids)
    found = {
        TABLE: state["embeddings.source"][rows],
        "decoder_ff_logit_out_b": state["embeddings.output_bias"][rows][None],
    }
    for part in parts_of(shape):
        biases = [bias for _, bias in part.theirs if bias is not None]
        for (weight, _), value in zip(part.theirs, np.split(state[part.weight], len(part.theirs)), strict=True):
            found[weight] = value.T if part.inputs else value[None]
        for bias, value in zip(biases, np.split(state[part.bias], len(biases)), strict=True):
            found[bias] = value[None]
    return {name: np.ascontiguousarray(found[name], np.float32) for name in sorted(found)}


def _blocks(model: nn.Module) -> Iterator[tuple[str, str]]:
    """The names of each block, here and in Marian."""
    for side in ("encoder", "decoder"):
        for number in range(len(model.get_submodule(f"{side}.blocks"))):  # type: ignore[arg-type]
            yield f"{side}.blocks.{number}", f"{side}_l{number + 1}"


def _settings(loaded: LoadedModel, shape: Shape) -> dict[str, Any]:
    """Marian's settings: those of the model's own file, if it came from one, with what has changed."""
    kept = read_metadata(loaded.path / WEIGHTS).get(SETTINGS_OF)
    before: dict[str, Any] = json.loads(kept) if kept else {}
    own = settings_of(shape)
    return {**before, **{k: v for k, v in own.items() if k in before and k not in _USUAL}} if before else own


def settings_of(shape: Shape) -> dict[str, Any]:
    """The settings of a model with one table."""
    encoder, decoder = shape.encoder_feed_forward, shape.decoder_feed_forward
    return {
        **_USUAL,
        "type": "transformer",
        "dim-emb": shape.width,
        "dim-vocabs": [shape.source_size, shape.target_size],
        "transformer-heads": shape.heads,
        "enc-depth": shape.encoder_layers,
        "dec-depth": shape.decoder_layers,
        "transformer-dim-ffn": encoder,
        **({} if encoder == decoder else {"transformer-decoder-dim-ffn": decoder}),
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": shape.activation,
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "",
        "transformer-decoder-autoreg": "rnn" if shape.unit else "self-attention",
        "dec-cell": "ssru" if shape.unit else "gru",
        "tied-embeddings-all": True,
    }


_USUAL: Final[dict[str, Any]] = {
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "enc-type": "bidirectional",
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "transformer-no-projection": False,
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "transformer-guided-alignment-layer": "last",
    "dim-rnn": 1024,
    "skip": False,
    "layer-normalization": False,
    "right-left": False,
    "special-vocab": [],
    "input-types": [],
    "ulr": False,
    "ulr-dim-emb": 0,
    "ulr-trainable-transformation": False,
    "version": "v1.9.56",
}
"""Settings without which Marian does not read a model."""


def quantized(values: dict[str, np.ndarray], alphas: dict[str, float]) -> dict[str, Value]:
    """As marian-conv --gemm-type intgemm8 makes them, with the multipliers of inputs."""
    found: dict[str, Value] = {}
    for name, value in values.items():
        if name == TABLE or (len(value) > 1 and "_W" in name):
            multiplier = np.float32(LARGEST) / np.abs(value).max().astype(np.float32)
            found[name] = Quantized(np.clip(np.rint(value * multiplier), -LARGEST, LARGEST).astype(np.int8), multiplier)
        else:
            found[name] = value
    for name, alpha in alphas.items():
        found[name + QUANTIZED_INPUT] = np.array([[alpha]], np.float32)
    return found


class _Largest:
    """The largest value of the inputs of each product, in each of some batches."""

    def __init__(self, model: Transformer) -> None:
        self.found: dict[str, list[float]] = {}
        self._handles = list(self._hooks(model))

    def note(self, names: Sequence[str], x: Tensor) -> None:
        for name in names:
            self.found.setdefault(name, []).append(float(x.detach().abs().max()))

    def _hooks(self, model: Transformer) -> Iterator[Any]:
        encoder, decoder = model.encoder, model.decoder
        assert isinstance(encoder, BlockEncoder) and isinstance(decoder, BlockDecoder)

        def reads(module: nn.Module, *names: str) -> Any:
            assert isinstance(module, Linear)
            return module.register_forward_pre_hook(lambda module, inputs: self.note(names, inputs[0]))

        def gives(module: nn.Module, *names: str) -> Any:
            return module.register_forward_hook(lambda module, inputs, output: self.note(names, output))

        before: nn.Module = decoder.words
        for block, name in _blocks(model):
            own: Any = model.get_submodule(block)
            if isinstance(own.mixing, UnitMixing):  # reads what the block before has put out
                yield gives(before, f"{name}_rnn_W", f"{name}_rnn_Wf")
            else:
                attention = getattr(own.mixing, "attention", own.mixing) if name.startswith("decoder") else own.mixing
                yield reads(attention.inputs, *(f"{name}_self_W{part}" for part in "qkv"))
                yield reads(attention.out, f"{name}_self_Wo")
            if name.startswith("decoder"):
                yield reads(own.attention.query, f"{name}_context_Wq")
                yield reads(own.attention.source, f"{name}_context_Wk", f"{name}_context_Wv")
                yield reads(own.attention.out, f"{name}_context_Wo")
                before = own.feed_forward.norm
            yield reads(own.feed_forward.up, f"{name}_ffn_W1")
            yield reads(own.feed_forward.down, f"{name}_ffn_W2")
        yield gives(before, "none", TABLE)

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()


def _alphas(loaded: LoadedModel, dev: str | None) -> tuple[dict[str, float], list[str]]:
    """The multipliers of the inputs of each product, on the dev text; none, and a note, without such a text."""
    config = loaded.config.data
    languages = config.source_language, config.target_language
    try:
        pairs = find_pairs(dev or config.dev, *languages, key="--dev" if dev else "data.dev")
    except DataError:
        if dev:
            raise
        pairs = []
    if not pairs:
        return {}, ["no 8-bit file: the text of data.dev is not there; --dev PREFIX names one"]
    lines = [line for pair in pairs for line in read_pairs(pair)]
    source, target = [line for line, _ in lines], [line for _, line in lines]
    model = loaded.model
    assert isinstance(model, Transformer)
    largest = _Largest(model)
    try:
        with torch.no_grad():
            for start in range(0, len(source), _BATCH):
                part = slice(start, start + _BATCH)
                model(_ids(loaded.tokenizer, source[part], "source"), _ids(loaded.tokenizer, target[part], "target"))
    finally:
        largest.close()
    return {
        name: LARGEST / (float(np.mean(values)) + _DEVIATIONS * float(np.std(values)))
        for name, values in largest.found.items()
    }, []


def _ids(tokenizer: Tokenizer, lines: Sequence[str], side: str) -> Tensor:
    """[B, T]"""
    encode = tokenizer.encode_source if side == "source" else tokenizer.encode_target
    rows = [torch.tensor([*ids, EOS]) for ids in encode(list(lines))]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def _lexicon(shortlist: Shortlist, ids: Sequence[int]) -> Lexicon:
    """A shortlist in Marian's ids; frequent words that are not among the first ids come with the end of the source."""
    theirs = {ours: i for i, ours in enumerate(ids)}
    starts, partners = shortlist.starts.tolist(), shortlist.partners.tolist()
    lists = [sorted({theirs[i] for i in partners[starts[ours] : starts[ours + 1]] if i in theirs}) for ours in ids]
    always = {theirs[i] for i in shortlist.frequent.tolist() if i in theirs}
    lists[0] = sorted({*lists[0], *(i for i in always if i >= FREQUENT)})
    best = max((len(one) for one in lists[1:]), default=0)
    lists[-1] = lists[-1] or [0]  # Marian and slimt refuse a shortlist whose last list is empty
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.uint64)
    return Lexicon(min(FREQUENT, len(ids)), best, offsets, np.array([i for one in lists for i in one], np.uint32))
