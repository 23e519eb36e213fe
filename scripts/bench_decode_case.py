"""One case of bench_decode, run in a separate process: a test set translated from text to text, printed as JSON.

python scripts/bench_decode_case.py RUN OPTIONS, with the variables of OpenMP set by the caller; OPTIONS is a JSON
object with beam, precision, max_length_offset (or null), shortlist (a file or null), single (one sentence at a time),
source, reference, and lines (number of source lines). Half of these lines are translated before the clock starts,
because the matrix library needs preparations for each new batch size.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nmt.system import keep_large_blocks, keep_more_kernels


def measure(run: str, options: dict[str, Any]) -> dict[str, Any]:
    """Sentences per second, without loading, and BLEU if all lines were translated."""
    import torch
    from sacrebleu.metrics.bleu import BLEU

    from nmt.data.text import read_lines
    from nmt.interop.model_dir import load_model
    from nmt.search.translator import Translator

    sources, references = list(read_lines(options["source"])), list(read_lines(options["reference"]))
    started = time.perf_counter()
    loaded = load_model(run)
    decoding = loaded.config.decoding
    offset = options["max_length_offset"]
    decoding = dataclasses.replace(
        decoding,
        max_length_offset=decoding.max_length_offset if offset is None else offset,
        beam_size=options["beam"],
        n_best=1,
        precision=options["precision"],
        shortlist=options["shortlist"],
        batch_tokens=1 if options["single"] else "auto",
    )
    translator = Translator(loaded.model, loaded.tokenizer, decoding, scores=False)
    loading = time.perf_counter() - started
    lines = sources[: options["lines"]]
    list(translator.translate(lines[: max(1, len(lines) // 2)]))
    started = time.perf_counter()
    found = list(translator.translate(lines))
    seconds = time.perf_counter() - started
    whole = len(lines) == len(references)
    return {
        "sentences_per_second": len(lines) / seconds,
        "bleu": BLEU().corpus_score(found, [references]).score if whole else None,
        "words": sum(len(line.split()) for line in found) / len(found),
        "loading": loading,
        "parameters": sum(weight.numel() for weight in loaded.model.parameters()),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "precision": str(translator.precision),
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    keep_more_kernels()  # as nmt-translate
    keep_large_blocks()
    print(json.dumps(measure(sys.argv[1], json.loads(sys.argv[2]))))
