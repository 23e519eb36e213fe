#!/usr/bin/env python3
"""One case of bench_engine.py, in a separate process: start to the first line, one line at a time, all lines at once.

    scripts/bench_engine_case.py engine|nmt|ctranslate2|web MODEL '{"beam": 1, "threads": 1, ...}'

Prints a JSON object. All times are CPU times of this process, from text to text.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

Translate = Callable[[list[str]], list[str]]


def read(path: str) -> list[str]:
    """The lines of a text file, also of a .gz file."""
    content = Path(path).read_bytes()
    return (gzip.decompress(content) if path.endswith(".gz") else content).decode().splitlines()


def peak_mb() -> float:
    """Peak resident memory of this program in MiB. getrusage could instead report its parent's memory at the start."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def engine(model: str, given: dict[str, Any]) -> Translate:
    """The engine alone, as in nmt-light."""
    from nmt.light import Translator

    translator = Translator(model, library=given["library"], kernels=given["kernels"])
    options = {"beam_size": given["beam"], "threads": given["threads"], "scores": False}
    return lambda lines: translator.texts(lines, **options)


def nmt(model: str, given: dict[str, Any]) -> Translate:
    """A run or an exported folder, translated by PyTorch."""
    import nmt as package

    translator = package.load(model, device="cpu", precision=given["precision"])
    return lambda lines: [found.text for found in translator.translate(lines, beam_size=given["beam"], scores=False)]


def ctranslate2(model: str, given: dict[str, Any]) -> Translate:
    """A folder with a model of CTranslate2, and spm.model next to the folder."""
    import ctranslate2 as package
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(Path(model).parent / "spm.model"))
    threads = {"inter_threads": given["threads"], "intra_threads": 1}
    translator = package.Translator(model, device="cpu", compute_type=given["precision"], **threads)

    def translate(lines: list[str]) -> list[str]:
        tokens = pieces.encode(lines, out_type=str)
        found = translator.translate_batch(
            tokens, beam_size=given["beam"], max_batch_size=64, max_decoding_length=100, length_penalty=1.0
        )
        return [pieces.decode(result.hypotheses[0]) for result in found]

    return translate


def web(folder: str, given: dict[str, Any]) -> dict[str, Any]:
    """The measurements of bench_engine_web.js in node. A page translates line by line: there are no batches."""
    import subprocess  # imported here, so that it adds no memory to the other programs

    script = Path(__file__).with_name("bench_engine_web.js")
    text = "\n".join(read(given["source"]))
    done = subprocess.run(
        ["node", str(script), folder, json.dumps(given)], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit((done.stderr.strip().splitlines() or ["node failed"])[-1])
    measured: dict[str, Any] = json.loads(done.stdout)
    return {**measured, "batch_per_s": measured["batch_per_cpu_s"]}


KINDS = {"engine": engine, "nmt": nmt, "ctranslate2": ctranslate2}


def native(kind: str, model: str, given: dict[str, Any]) -> dict[str, Any]:
    """Measure in this process."""
    translate = KINDS[kind](model, given)
    translate(["A man is riding a bike ."])
    start, memory = time.process_time(), peak_mb()
    source = read(given["source"])
    translate(source[: len(source) // 2])
    single, batch, wall = [], [], []
    for _ in range(given["repeats"]):
        lines = source[: given["lines"]]
        before = time.process_time()
        for line in lines:
            translate([line])
        single.append(1000 * (time.process_time() - before) / len(lines))
        before, clock = time.process_time(), time.perf_counter()
        found = translate(source)
        batch.append(len(source) / (time.process_time() - before))
        wall.append(len(source) / (time.perf_counter() - clock))
    return {
        "start_cpu_s": start,
        "memory_mb": memory,
        "single_ms": min(single),
        "batch_per_cpu_s": max(batch),
        "batch_per_s": max(wall),
        "found": found,
    }


def main() -> int:
    """Measure and print."""
    kind, model, text = sys.argv[1:]
    given = json.loads(text)
    measured = web(model, given) if kind == "web" else native(kind, model, given)
    from sacrebleu.metrics import BLEU

    bleu = BLEU().corpus_score(measured.pop("found"), [read(given["reference"])]).score
    print(json.dumps({**measured, "bleu": bleu}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
