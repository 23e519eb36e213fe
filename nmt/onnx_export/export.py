"""Exporting a model as a folder of ONNX graphs: what `nmt-export --format onnx` does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import onnx

from nmt.data.sentencepiece import SentencePieceTokenizer
from nmt.errors import CheckpointError, ConfigError
from nmt.files import reason, sums_text, write_new
from nmt.interop import run_layout
from nmt.interop.engine.lowering import lower
from nmt.interop.engine.program import Lowered
from nmt.interop.export import Exported, is_replaced, read_for_export, whole_directory
from nmt.onnx_export.card import FORMAT, config_of, notes_on, readme_of
from nmt.onnx_export.encoder import encoder_graph
from nmt.onnx_export.graph import model_of
from nmt.onnx_export.step import step_graph
from nmt.onnx_export.weights import OnnxPrecision
from nmt.registry import EXPORTS

CONFIG: Final = "config.json"
_JOINT, _SOURCE, _TARGET = "joint.model", "source.model", "target.model"
_LARGEST_CONFIG: Final = 1 << 20
_LARGEST_GRAPH: Final = (1 << 31) - (1 << 24)
"""Bytes of weights; protobuf stores less than 2**31 in all."""


@EXPORTS.register("onnx")
def export_onnx(
    model: str | Path,
    output: Path,
    *,
    precision: OnnxPrecision = "fp32",
    checkpoint: str | int = "best",
    plugins: Sequence[str] = (),
    overwrite: bool = False,
    note: str = "",
) -> Exported:
    """Write the model in `model` to the folder `output`, which appears when it is complete.

    Args:
        model: an argument of `load_model`, with `checkpoint` and `plugins`.
        overwrite: replace an existing folder of this kind.
        note: text in Markdown for the card, such as the licence and what the model is for.

    Raises:
        CheckpointError: `output` exists, or the model cannot be read, is too large or was rounded by an export.
        ConfigError: there is no graph for a class or a tokenizer; the line names it.
    """
    what = "folders of ONNX graphs"
    replaces = is_replaced(output, model=Path(model), overwrite=overwrite, is_one=_is_ours, what=what)
    loaded = read_for_export(model, checkpoint=checkpoint, plugins=plugins)
    if (context := loaded.config.data.context) != "none":
        raise ConfigError(f"data.context: '{context}' is not known to this format; a model directory has it")
    if type(loaded.tokenizer) is not SentencePieceTokenizer:
        name = loaded.config.data.tokenizer
        raise ConfigError(f"data.tokenizer: '{name}' cannot be exported with ONNX graphs. Allowed: sentencepiece.")
    lowered = lower(loaded.model, precision="fp32", equations=True)
    encoder, step = models_of(lowered, precision=precision, vocabulary=loaded.model.target_vocab_size)
    weights = sum(map(_checked_size, (encoder, step)))
    files = {
        run_layout.ENCODER: encoder.SerializeToString(),
        run_layout.STEP: step.SerializeToString(),
        **_pieces(loaded.tokenizer),
    }
    names = [name for name in files if name.endswith(".model")]
    config = config_of(loaded, encoder, step, precision=precision, pieces=(names[0], names[-1]))
    files[CONFIG] = json.dumps(config, ensure_ascii=False, indent=1).encode("utf-8") + b"\n"
    total = sum(map(len, files.values()))
    card = readme_of(loaded, config, name=output.name, precision=precision, weights=weights, total=total, note=note)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    files |= {run_layout.CARD: card.encode("utf-8"), run_layout.SUMS: sums_text(sums)}
    try:
        with whole_directory(output, replace=replaces) as folder:
            for name, content in files.items():
                write_new(folder / name, content)
    except OSError as error:
        raise CheckpointError(f"{output}: cannot be written ({reason(error)})") from error
    return Exported(loaded, weights, sum(map(len, files.values())), notes_on(loaded.config.decoding))


def models_of(
    lowered: Lowered, *, precision: OnnxPrecision, vocabulary: int
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The graphs of encoder and step, for a target vocabulary of so many entries."""
    graphs = {
        "encoder": encoder_graph(lowered, precision=precision),
        "step": step_graph(lowered, precision=precision, vocabulary=vocabulary),
    }
    encoder, step = (model_of(graph, name, contrib=precision == "int8") for name, graph in graphs.items())
    return encoder, step


def _pieces(tokenizer: SentencePieceTokenizer) -> dict[str, bytes]:
    source, target = tokenizer.models
    return {_JOINT: source} if source == target else {_SOURCE: source, _TARGET: target}


def _checked_size(model: onnx.ModelProto) -> int:
    """Bytes of the weights of a graph; CheckpointError if ONNX cannot hold them in one file."""
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    if size > _LARGEST_GRAPH:
        raise CheckpointError(
            f"{model.graph.name}.onnx: would have {size / 1e9:.1f} GB of weights, and a file of ONNX holds less than "
            "2.1; export in int8, or for the engine"
        )
    return size


def _is_ours(folder: Path) -> bool:
    """Whether this folder was written by `export_onnx`."""
    try:
        with (folder / CONFIG).open("rb") as stream:
            found = json.loads(stream.read(_LARGEST_CONFIG))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT and (folder / run_layout.STEP).is_file()
