"""One case of bench_latency, run in a separate process: sentences translated one by one by the library.

python scripts/bench_latency_case.py RUN OPTIONS reads sentences from standard input; OPTIONS is a JSON object with
beam, warm (first sentences, not counted) and torch_first. Prints a JSON object: `latencies`, the seconds of each
sentence, and `lines_per_second` for all sentences in one call.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def measure(run: str, options: dict[str, Any], lines: list[str]) -> dict[str, Any]:
    """Load, warm up, translate each line alone, then all lines twice; only the second time is measured."""
    if options["torch_first"]:
        import torch  # noqa: F401  (as in a program that imports nmt later)
    import nmt

    latencies = []
    with nmt.load(run, device="cpu") as translator:
        for line in [*lines[: options["warm"]], *lines]:
            began = time.perf_counter()
            translator.translate(line, beam_size=options["beam"], n_best=1)
            latencies.append(time.perf_counter() - began)
        for _ in range(2):
            began = time.perf_counter()
            translator.translate(lines, beam_size=options["beam"], n_best=1)
            seconds = time.perf_counter() - began
    return {
        "latencies": latencies[options["warm"] :],
        "lines_per_second": len(lines) / seconds,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], json.loads(sys.argv[2]), sys.stdin.read().split("\n")[:-1])))
