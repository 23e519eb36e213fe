"""The description of a folder of ONNX graphs: config.json for programs, README.md for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import onnx

from nmt.config.schema import DecodingConfig
from nmt.data.sentencepiece import has_case_marks
from nmt.interop.engine.export import lacking, numbers_of, settings_in_words, temperature_of
from nmt.interop.facts import facts_for_tools
from nmt.interop.model_dir import LoadedModel
from nmt.light.options import names_of
from nmt.onnx_export.graph import OPSET
from nmt.onnx_export.weights import BLOCK, OnnxPrecision
from nmt.registry import CARDS

FORMAT: Final = "nmt-onnx"
VERSION: Final = 1
PRECISIONS: Final[dict[OnnxPrecision, str]] = {
    "fp32": "fp32",
    "int8": "int8: matrices and embeddings with a scale for each row, multiplied by MatMulNBits in blocks of "
    f"{BLOCK} columns, vectors fp32",
}
_TYPES: Final = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.INT64: "int64", onnx.TensorProto.BOOL: "bool"}
_MEANINGS: Final = {
    "source": "ids of sentences, each with 2 at its end, shorter ones filled up with 0",
    "source_mask": "false where a sentence is filled up",
    "memory": "the values of each word that attention reads",
    "state": "state of a layer",
    "key_cache": "keys of the words so far",
    "value_cache": "values of the words so far",
    "tokens": "the last word of each row, 0 before the first",
    "logits": "scores of all words to come next; their softmax are probabilities",
    "attention": "attention of the row, the mean over layers and heads",
}

_EXAMPLE: Final = '''\
import json

import numpy as np
import onnxruntime
import sentencepiece

with open("config.json", encoding="utf-8") as stream:
    config = json.load(stream)
source_pieces = sentencepiece.SentencePieceProcessor(model_file=config["source_pieces"])
target_pieces = sentencepiece.SentencePieceProcessor(model_file=config["target_pieces"])
encoder, step = (onnxruntime.InferenceSession(name) for name in ("encoder.onnx", "step.onnx"))
PADDING, END = 0, 2


def run(graph, values):
    """The outputs of a graph by their names."""
    names = [each.name for each in graph.get_outputs()]
    return dict(zip(names, graph.run(names, values)))


def translate(text):
    """Greedy search."""
    source = source_pieces.encode(text) + [END]
    if len(source) == 1:
        return ""
    values = run(encoder, {"source": np.array([source], dtype=np.int64)})
    values["tokens"] = np.array([PADDING], dtype=np.int64)  # no word yet
    words = []
    search = config["search"]
    while len(words) < int(search.get("max_length_factor", 1) * len(source)) + search["max_length_offset"]:
        results = run(step, values)
        logits = results["logits"][0]
        logits[PADDING] = -np.inf
        if not words:
            logits[END] -= 1e8  # no translation is empty
        words.append(int(logits.argmax()))
        if words[-1] == END:
            break
        values = {name: results.get("next_" + name, value) for name, value in values.items()}
        values["tokens"] = np.array(words[-1:], dtype=np.int64)
    return target_pieces.decode([word for word in words if word != END]).replace("\\n", " ")
'''


def notes_on(decoding: DecodingConfig) -> list[str]:
    """Settings that change translations, and are neither in the graphs nor in the example of greedy search."""
    keys = ["search_options.temperature"] if temperature_of(decoding) != 1 else []
    keys += [option.name for option in lacking(decoding, door="onnx")]
    return [f"decoding.{key}: is set, but is not part of the graphs; your own search must apply it" for key in keys]


def config_of(
    loaded: LoadedModel,
    encoder: onnx.ModelProto,
    step: onnx.ModelProto,
    *,
    precision: OnnxPrecision,
    pieces: tuple[str, str],
) -> dict[str, Any]:
    """The content of config.json; `pieces` are the files with the SentencePiece models of source and target."""
    decoding = loaded.config.decoding
    return {
        "format": FORMAT,
        "version": VERSION,
        **facts_for_tools(loaded, precision=precision),
        "opset": OPSET,
        "source_vocabulary": loaded.model.source_vocab_size,
        "target_vocabulary": loaded.model.target_vocab_size,
        "ids": {"padding": 0, "unknown": 1, "end": 2},
        "source_pieces": pieces[0],
        "target_pieces": pieces[1],
        "case": "markup 1" if any(map(has_case_marks, getattr(loaded.tokenizer, "models", ()))) else None,
        "search": {**settings_in_words(numbers_of(decoding)), "search": decoding.chosen_search, **_others(decoding)},
        "encoder": _interface(encoder),
        "step": _interface(step),
    }


def readme_of(
    loaded: LoadedModel,
    config: dict[str, Any],
    *,
    name: str,
    precision: OnnxPrecision,
    weights: int,
    total: int,
    note: str = "",
) -> str:
    """The card, in Markdown; `weights` and `total` are bytes, those of all but the card and the checksums."""
    search = ", ".join(f"`{key}` {value}" for key, value in config["search"].items())
    use = [
        "With ONNX Runtime, in any language that has it: `encoder.onnx` reads sentences, `step.onnx` scores what word "
        "comes next in each row, a hypothesis. The first step takes what the encoder puts out, by the same names; a "
        "later one takes, in place of an input such as `state_0`, what the step before puts out as `next_state_0`, and "
        "as `tokens` the words that were chosen. A beam search keeps some of the rows, the same ones of `tokens` and "
        "of `next_...`.",
        _table(config, "encoder"),
        _table(config, "step"),
        "`rows_or_1`: as many as rows, or 1 where all rows are hypotheses of one sentence.",
        f"Ids are those of the SentencePiece models, `{config['source_pieces']}` of the source and "
        f"`{config['target_pieces']}` of the target: 0 padding, which is never chosen, 1 unknown, 2 end of a sentence.",
        f"The search that the model was made for: {search}. `max_length_offset` is how many tokens a translation may "
        "have more than its source, or more than `max_length_factor` times as many, the end symbol counted in both. A "
        "source of more than `longest_source` tokens is translated in parts, unless that is 0. A beam compares "
        "log-probabilities divided by ((5 + tokens) / 6) ** `length_penalty`, the end symbol counted, or, where "
        "`length_normalization` is power, by tokens ** `length_penalty`.",
    ]
    example = _EXAMPLE
    if config["case"]:
        use.append(
            "The vocabularies have case marks: pieces are in small letters, and marks say how words are written. "
            "`MarkedModel` of the Python package nmt reads and writes them; nmt/case_marks/marks.py says how."
        )
        example = example.replace("sentencepiece.SentencePieceProcessor(model_file=", "MarkedModel.open(")
        example = example.replace("import sentencepiece\n", "\nfrom nmt.case_marks.model import MarkedModel\n")
    packages = f"numpy onnxruntime {'nmt' if config['case'] else 'sentencepiece'}"
    use += [
        f"Greedy search in Python (`pip install {packages}`), for texts of one line:",
        f"```python\n{example}```",
    ]
    words = PRECISIONS[precision]
    return CARDS.get("markdown")(
        loaded, name=name, stored=precision, weights=weights, total=total, words=words, use=use, note=note
    )


def _others(decoding: DecodingConfig) -> dict[str, Any]:
    """Settings of which there is a note, with their values; of a file its name."""
    found = {option.name: getattr(decoding, option.name) for option in lacking(decoding, door="onnx")}
    if decoding.search_options:
        found["search_options"] = decoding.search_options
    return {key: Path(value).name if key in names_of("file", "model") else value for key, value in found.items()}


def _interface(model: onnx.ModelProto) -> dict[str, list[dict[str, Any]]]:
    """Inputs and outputs of a graph: names, types and shapes."""
    return {
        what: [
            {
                "name": value.name,
                "type": _TYPES[value.type.tensor_type.elem_type],
                "shape": [size.dim_param or size.dim_value for size in value.type.tensor_type.shape.dim],
            }
            for value in values
        ]
        for what, values in (("inputs", model.graph.input), ("outputs", model.graph.output))
    }


def _table(config: dict[str, Any], graph: str) -> str:
    lines = [f"| `{graph}.onnx` | type | shape | |", "|---|---|---|---|"]
    for what in ("input", "output"):
        for each in config[graph][f"{what}s"]:
            shape = ", ".join(map(str, each["shape"]))
            lines.append(f"| {what} `{each['name']}` | {each['type']} | {shape} | {_meaning(each['name'])} |")
    return "\n".join(lines)


def _meaning(name: str) -> str:
    plain = name.removeprefix("next_").rstrip("0123456789").rstrip("_")
    return f"{_MEANINGS[plain]}, after this step" if name.startswith("next_") else _MEANINGS[plain]
