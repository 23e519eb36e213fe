#!/usr/bin/env python3
"""One case of bench_marian.py, in a separate process, which may be another Python that lacks nmt.

    scripts/bench_marian_case.py engine|fxtranslate|slimt '{"folder": ..., "lines": ..., ...}'

Prints a JSON object. All times are CPU times of this process, from text to text; pieces of translations are counted,
each of which is a word of the text that comes out (bench_marian.py makes models that say no others).
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_engine_case import peak_mb

Group = tuple[int, list[str]]
"""Pieces of each of the lines with their end symbol, and the lines"""


class Opened(NamedTuple):
    """A program that has opened its model."""

    translate: Callable[[Group], list[str]]
    instructions: str
    """The instruction set of its products"""
    has_batches: bool


def engine(given: dict[str, Any]) -> Opened:
    """The engine alone, as in nmt-light; `limit` [a, b] means a n + b words for n pieces."""
    from nmt.light import Translator

    translator = Translator(given["model"], library=given["library"], kernels=given["kernels"])
    factor, extra = given["limit"]
    options = {"beam_size": 1, "threads": 1, "scores": False, "split": "none"}
    options["shortlist"] = bool(given["shortlist"])

    def translate(group: Group) -> list[str]:
        length, lines = group
        return translator.texts(lines, max_length_offset=(factor - 1) * length + extra, **options)

    return Opened(translate, translator.kernels, has_batches=True)


def fxtranslate(given: dict[str, Any]) -> Opened:
    """Firefox's engine in Rust, which translates one line at a time."""
    import fxtranslate as package

    vocabulary = Path(given["vocabulary"]).read_bytes()
    shortlist = given["shortlist"] and Path(given["shortlist"]).read_bytes()
    translator = package.Translator(Path(given["model"]).read_bytes(), vocabulary, vocabulary, shortlist or None)
    return Opened(
        lambda group: [translator.translate(line) for line in group[1]], translator.backend(), has_batches=False
    )


def slimt(given: dict[str, Any]) -> Opened:
    """Bergamot's engine; `import slimt` would look up a web address, and its compiled part does not."""
    found = importlib.util.find_spec("slimt")
    assert found is not None and found.origin is not None
    (compiled,) = Path(found.origin).parent.glob("_slimt*.so")
    spec = importlib.util.spec_from_file_location("_slimt", compiled)
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    config = package.preset.tiny()
    config.encoder_layers, config.decoder_layers, config.num_heads = given["layers"]
    service = package.Service(workers=1, cache_size=0)
    files = package.Package(model=given["model"], vocabulary=given["vocabulary"], shortlist=given["shortlist"])
    model = package.Model(config, files)
    return Opened(
        lambda group: [one.target.text for one in service.translate(model, group[1])], given["widest"], has_batches=True
    )


KINDS = {"engine": engine, "fxtranslate": fxtranslate, "slimt": slimt}


def main() -> int:
    """Measure and print."""
    kind, text = sys.argv[1:]
    given = json.loads(text)
    groups: list[Group] = [tuple(group) for group in json.loads(Path(given["lines"]).read_text(encoding="utf-8"))]
    opened = KINDS[kind](given)
    few = [(length, lines[:1]) for length, lines in groups]
    opened.translate(few[0])
    start, first = time.process_time(), peak_mb()
    for group in few:
        opened.translate(group)
    alone = peak_mb()
    found: dict[str, Any] = {"start_cpu_s": start, "start_mb": first, "alone_mb": alone}

    def rate(cases: list[Group]) -> tuple[float, int]:
        """Pieces a CPU second, and pieces."""
        before = time.process_time()
        pieces = sum(len(line.split()) for case in cases for line in opened.translate(case))
        return pieces / (time.process_time() - before), pieces

    each = [(length, [line]) for length, lines in groups for line in lines]
    single = each[:: -(-len(each) // given["single"])]
    for _ in range(given["repeats"]):
        for name, cases in (("alone", single), ("batches", groups)):
            if name == "alone" or opened.has_batches:
                speed, pieces = rate(cases)
                found[name] = max(found.get(name, 0.0), speed)
                found[f"{name}_pieces"] = pieces
    found.setdefault("batches", found["alone"])
    print(json.dumps({**found, "peak_mb": peak_mb(), "instructions": opened.instructions}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
