"""Time and memory of one long line, at once and in parts: python scripts/bench_long_lines.py [--full].

The model has the size of configs/multi30k_lrn.yaml and random weights, and never chooses the end symbol, so that every
search continues to its limit, which is the worst case. Each line is translated in a separate process. `--full`: also a
line of 1 MB, 170,000 tokens, in parts.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

CASES = [
    *((tokens, None) for tokens in (250, 500, 1000, 2000, 4000, 8000)),
    *((8000, split) for split in (1000, 100)),
]
FULL = [(170_000, 100), (170_000, 1000)]
"""A line of 1 MB."""


def measure(tokens: int, split: int | None) -> dict[str, float]:
    """CPU seconds and MB of memory for one line of this many tokens with greedy search."""
    import torch

    from nmt.config.schema import DecodingConfig, ModelConfig
    from nmt.data import Vocabulary
    from nmt.data.whitespace import WhitespaceOptions, WhitespaceTokenizer
    from nmt.models import build_model
    from nmt.search.translator import Translator
    from nmt.system import keep_large_blocks

    keep_large_blocks()
    torch.manual_seed(1)
    words = [f"w{i}" for i in range(5000)]
    tokenizer = WhitespaceTokenizer(Vocabulary(words), Vocabulary(words), options=WhitespaceOptions())
    config = ModelConfig(
        cell="lrn",
        hidden_size=256,
        embedding_size=256,
        encoder_layers=1,
        decoder_layers=1,
        tie_embeddings="all",
        layer_norm=False,
        dropout=0.0,
    )
    model = build_model(config, tokenizer.source_size, tokenizer.target_size).eval()
    with torch.no_grad():
        model.embeddings.softmax_table[2] = 0.0  # the end symbol's logit is 0, below the largest of 5,000
    decoding = DecodingConfig(beam_size=1, split_long=split, max_length_offset=10)
    translator = Translator(model, tokenizer, decoding, scores=False)
    list(translator.translate(["w1 w2 w3"]))
    before, started = _peak(), time.process_time()
    (found,) = translator.translate_window([" ".join(words[i % 5000] for i in range(tokens))])
    assert not found.has_ended
    return {"seconds": round(time.process_time() - started, 1), "mb": round(_peak() - before)}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure one case, given as JSON, in this process; without it, measure all cases."""
    arguments = sys.argv[1:]
    if arguments and arguments[0].startswith("["):
        print(json.dumps(measure(*json.loads(arguments[0]))))
        return
    print("tokens   split_long  seconds  MB more")
    for case in [*CASES, *(FULL if "--full" in arguments else [])]:
        command = [sys.executable, __file__, json.dumps(case)]
        row = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        print(f"{case[0]:7,}  {case[1] or 'none':>10}  {row['seconds']:7.1f}  {row['mb']:7,.0f}", flush=True)


if __name__ == "__main__":
    main()
