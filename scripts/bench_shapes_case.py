#!/usr/bin/env python3
"""One case of bench_shapes.py, in a separate process, which may be another Python that lacks nmt.

    scripts/bench_shapes_case.py '{"kind": "engine", "models": [...], "beam": 1, ...}'

Prints a JSON object. All times are CPU times of this process, from text to text.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

Translate = Callable[[list[str]], Any]


def engine(given: dict[str, Any]) -> Translate:
    """The engine; several models are an ensemble."""
    from nmt.light import Translator

    models = given["models"] if len(given["models"]) > 1 else given["models"][0]
    translator = Translator(models, library=given["library"], kernels=given["kernels"])
    options = {"beam_size": given["beam"], "threads": 1, "scores": False, "max_length_offset": 0, "split_long": "none"}
    if given["beam"] > 1:
        options["length_penalty"] = 2.0  # none stops before the limit
    return lambda lines: translator.texts(lines, **options)


def ctranslate2(given: dict[str, Any]) -> Translate:
    """A Transformer with random weights, of width 128."""
    import ctranslate2 as package
    import numpy as np
    import sentencepiece

    splitter = sentencepiece.SentencePieceProcessor(model_file=given["pieces"])
    names = [splitter.id_to_piece(i) for i in range(splitter.get_piece_size())]
    width, wide, heads, chance = 128, 256, 4, np.random.default_rng(1)
    spec = package.specs.TransformerSpec.from_config(tuple(given["layers"]), heads, pre_norm=True)
    table = chance.normal(0, width**-0.5, (len(names), width)).astype(np.float32)

    def linear(to: Any, outputs: int, inputs: int) -> None:
        to.weight = chance.normal(0, (2 / (inputs + outputs)) ** 0.5, (outputs, inputs)).astype(np.float32)
        to.bias = np.zeros(outputs, np.float32)

    def norm(to: Any) -> None:
        to.gamma, to.beta = np.ones(width, np.float32), np.zeros(width, np.float32)

    def attention(to: Any, sizes: list[int]) -> None:
        norm(to.layer_norm)
        for each, outputs in zip(to.linear, sizes, strict=True):
            linear(each, outputs, width)

    for side in (spec.encoder, spec.decoder):
        embeddings = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        embeddings.weight, side.scale_embeddings = table.copy(), True
        side.position_encodings.encodings = chance.normal(0, 0.5, (512, width)).astype(np.float32)
        norm(side.layer_norm)
        for layer in side.layer:
            attention(layer.self_attention, [3 * width, width])
            if side is spec.decoder:
                attention(layer.attention, [width, 2 * width, width])
            norm(layer.ffn.layer_norm)
            linear(layer.ffn.linear_0, wide, width)
            linear(layer.ffn.linear_1, width, wide)
    spec.decoder.projection.weight, spec.decoder.projection.bias = table.copy(), np.zeros(len(names), np.float32)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = names[1], names[0], names[2]
    spec.config.decoder_start_token, spec.config.add_source_eos = names[0], True
    spec.validate()
    spec.optimize(quantization="int8")
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = package.Translator(folder, device="cpu", compute_type="int8", inter_threads=1, intra_threads=1)
    options = {"beam_size": given["beam"], "max_batch_size": 64 if given["beam"] == 1 else 16, "length_penalty": 1.0}

    def translate(lines: list[str]) -> list[str]:
        pieces = splitter.encode(lines, out_type=str)
        steps = round(sum(map(len, pieces)) / len(pieces)) + 1  # all of a call have as many
        found = translator.translate_batch(pieces, min_decoding_length=steps, max_decoding_length=steps, **options)
        return [splitter.decode(each.hypotheses[0]) for each in found]

    return translate


def texts(given: dict[str, Any]) -> dict[str, Any]:
    """Lines alone, in batches, and long ones."""
    lines = json.loads(Path(given["lines"]).read_text(encoding="utf-8"))
    translate = {"engine": engine, "ctranslate2": ctranslate2}[given["kind"]](given)
    translate(lines[:100])
    clock = time.process_time
    alone, batch, long = [], [], [[] for _ in given["long"]]
    for _ in range(given["repeats"]):
        start = clock()
        for line in lines[: given["single"]]:
            translate([line])
        alone.append(1000 * (clock() - start) / max(given["single"], 1))
        start = clock()
        if given["single"]:
            translate(lines)
        batch.append(len(lines) / (clock() - start))
        for line, times in zip(given["long"], long, strict=True):
            start = clock()
            translate([line])
            times.append(1000 * (clock() - start))
    if given["long"]:
        return {"long_ms": [min(times) for times in long]}
    return {"alone_ms": min(alone), "batch": max(batch)}


def ids(given: dict[str, Any]) -> dict[str, Any]:
    """Random sentences of 27 pieces, the end symbol counted, whose translations have 28."""
    from nmt.light import Translator
    from nmt.light.results import Request

    chance = random.Random(1)
    sentences = [[chance.randrange(3, given["size"]) for _ in range(26)] for _ in range(given["sentences"])]
    translator = Translator(given["models"][0], library=given["library"], kernels=given["kernels"])
    options = {"beam_size": given["beam"], "threads": 1, "scores": False, "max_length_offset": 1, "length_penalty": 2.0}
    options["shortlist"] = given["shortlist"]

    def search(part: list[list[int]]) -> float:
        start = time.process_time()
        with translator.found_ids(part, [Request("")] * len(part), **options) as found:
            spent = time.process_time() - start
            assert all(len(found.ids(i, 0, 0)) == 28 for i in range(len(part)))
        return 1000 * spent / len(part)

    search(sentences[:4])
    return {
        "batch_ms": min(search(sentences) for _ in range(given["repeats"])),
        "alone_ms": sum(search([one]) for one in sentences[:8]) / 8,
    }


def main() -> int:
    """Measure and print."""
    given = json.loads(sys.argv[1])
    print(json.dumps(ids(given) if given["kind"] == "ids" else texts(given)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
