#!/usr/bin/env python3
"""What each option of a search costs in the engine: BLEU, and CPU time beside that without it.

    scripts/bench_engine_options.py MODEL.nmt SOURCE REFERENCE [--lines N] [--repeats N]

The options take turns with the search without any; the time is the median of the ratios of neighbouring turns, by one
thread. Of a prefix the first two words of the reference are given, forbidden is the longest word of the translation
without it. What remains of a difference is partly the number of tokens: it is shown, too. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sacrebleu

from nmt.data import read_lines
from nmt.interop.engine.opened import open_engine
from nmt.light.results import Request


def cases(translator: Any, lines: list[str], references: list[str]) -> dict[str, tuple[list[Any], dict[str, Any]]]:
    """By name the texts or requests, and the options."""
    plain = translator.texts(lines)
    prefixes = [
        Request(line, prefix=" ".join(text.split()[:2]) + " ") for line, text in zip(lines, references, strict=True)
    ]
    open_ended = [Request(line, prefix=text[:7]) for line, text in zip(lines, references, strict=True)]
    forbidden = [
        Request(line, forbidden=[max(text.split() or ["x"], key=len)]) for line, text in zip(lines, plain, strict=True)
    ]
    words = sorted(
        {word for line in lines for word in line.split() if word.isalpha()}, key=lambda word: (-len(word), word)
    )
    glossary = translator.glossary({word.lower(): word.upper() for word in words[:1000]})
    marked = [f"<b>{line}</b> {{name}}" for line in lines]
    return {
        "lines with a tag and a field": (marked, {}),
        "the same, placeholders": (marked, {"placeholders": True}),
        "glossary of 1,000 terms": (lines, {"glossary": glossary}),
        "min_length 5": (lines, {"min_length": 5}),
        "no_repeat_ngram 3": (lines, {"no_repeat_ngram": 3}),
        "prefix of two words": (prefixes, {}),
        "prefix of 7 characters": (open_ended, {}),
        "forbidden word": (forbidden, {}),
        "coverage_penalty 0.2": (lines, {"coverage_penalty": 0.2}),
        "repeat_penalty 1.2": (lines, {"repeat_penalty": 1.2}),
        "entropies": (lines, {"details": ["entropies"]}),
        "sample": (lines, {"search": "sample"}),
        "sample, top_p 0.9": (lines, {"search": "sample", "search_options": {"top_p": 0.9}}),
    }


def tokens(translator: Any, texts: list[Any], options: dict[str, Any]) -> int:
    """Tokens of the translations, for each of which there is a step."""
    found = translator.translate(texts, **{**options, "details": ["tokens"]})
    return sum(len(one.tokens) for one in found)


def spent(translator: Any, texts: list[Any], options: dict[str, Any]) -> tuple[float, list[str]]:
    """CPU seconds, and the translations."""
    start = time.process_time()
    found = translator.texts(texts, **options)
    return time.process_time() - start, found


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "source", "reference"):
        parser.add_argument(name)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    lines = list(read_lines(arguments.source))[: arguments.lines]
    references = list(read_lines(arguments.reference))[: arguments.lines]
    translator = open_engine([arguments.model])
    print(f"{arguments.model}, {len(lines)} lines, {translator.kernels}, one thread\n")
    heads = [f"BLEU, {name} | tokens, {name} | CPU time, {name}" for name in ("greedy", "beam of 4")]
    print(f"| option | {' | '.join(heads)} |\n|{'---|' * 7}")
    beams = ({"beam_size": 1, "scores": False}, {"beam_size": 4})
    bases = [spent(translator, lines, beam) for beam in beams]
    lengths = [tokens(translator, lines, beam) for beam in beams]
    cells = [
        f"{sacrebleu.corpus_bleu(found, [references]).score:.2f} | {count:,} | {1000 * seconds / len(lines):.2f} ms"
        for (seconds, found), count in zip(bases, lengths, strict=True)
    ]
    print(f"| none | {' | '.join(cells)} |")
    for name, (texts, options) in cases(translator, lines, references).items():
        cells = []
        for beam, length in zip(beams, lengths, strict=True):
            is_left_out = "coverage_penalty" if beam["beam_size"] == 1 else "search"  # samples have no beam
            if is_left_out in options:
                cells.append("- | - | -")
                continue
            ratios, found = [], list[str]()
            for _ in range(arguments.repeats):
                base, _ = spent(translator, lines, beam)
                own, found = spent(translator, texts, {**beam, **options})
                ratios.append(own / base)
            bleu = sacrebleu.corpus_bleu(found, [references]).score
            more = tokens(translator, texts, {**beam, **options}) / length
            cells.append(f"{bleu:.2f} | {100 * (more - 1):+.1f} % | {100 * (statistics.median(ratios) - 1):+.1f} %")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
