#!/usr/bin/env python3
"""Compare the engine's subwords with the package sentencepiece: CPU seconds to open a model, split text and join it.

    scripts/bench_engine_subwords.py runs/demo/tokenizer/joint.model TEXT

Prints Markdown. The rounds of the two alternate, each in one thread; each round of the engine is a separate process.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import sentencepiece

import nmt
from nmt.cli.arguments import positive
from nmt.cli.common import execute, make_parser
from nmt.compiling import find_compiler
from nmt.data.text import read_lines
from nmt.errors import DataError

SOURCE = Path(nmt.__file__).parent / "light/src"
SOURCES = ("subwords.c", "case.c", "split.c", "words.c")
STEPS = ("open the model", "text to ids", "ids to text")


def build_parser() -> argparse.ArgumentParser:
    """The model, the text and the number of rounds."""
    parser = make_parser("scripts/bench_engine_subwords.py", "Compare the engine's subwords with sentencepiece.")
    parser.add_argument("model", metavar="MODEL", type=Path, help="SentencePiece model file")
    parser.add_argument("text", metavar="TEXT", type=Path, help="text, one sentence a line")
    parser.add_argument("--rounds", type=positive, default=11, metavar="N", help="default 11")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    lines = list(read_lines(arguments.text))
    try:
        proto = arguments.model.read_bytes()
    except OSError as error:
        raise DataError(f"{arguments.model}: cannot read the SentencePiece model ({error.strerror})") from error
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        text.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        binary = compiled(Path(folder))
        rounds = [(engine(binary, arguments.model, text), package(proto, lines)) for _ in range(arguments.rounds)]
    ids = {found[3] for pair in rounds for found in pair}
    if len(ids) > 1:
        raise DataError(f"{arguments.text}: the engine and sentencepiece split it into different numbers of pieces")
    print(f"\n{len(lines):,} lines, {int(ids.pop()):,} pieces, {arguments.rounds} rounds, CPU milliseconds\n")
    print("| | engine | lowest | sentencepiece | lowest | times as fast |\n|-|-:|-:|-:|-:|-:|")
    for step, name in enumerate(STEPS):
        ours, theirs = ([1e3 * pair[side][step] for pair in rounds] for side in (0, 1))
        ratio = statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
        cells = (statistics.median(ours), min(ours), statistics.median(theirs), min(theirs))
        print(f"| {name} | {' | '.join(f'{x:.2f}' for x in cells)} | {ratio:.2f} |")
    return 0


def compiled(folder: Path) -> Path:
    """Compile the program of one round; return its path."""
    sources = [str(Path(__file__).with_suffix(".c")), *(str(SOURCE / name) for name in SOURCES)]
    command = [*find_compiler(), "-std=c11", "-O3", f"-I{SOURCE}", *sources, "-o", str(folder / "round"), "-lm"]
    subprocess.run(command, check=True)
    return folder / "round"


def engine(binary: Path, model: Path, text: Path) -> list[float]:
    """CPU seconds of the steps, and the number of pieces."""
    done = subprocess.run([str(binary), str(model), str(text)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise DataError(done.stderr.strip() or f"{model}: the engine could not split {text}")
    return [float(word) for word in done.stdout.split()]


def package(proto: bytes, lines: Sequence[str]) -> list[float]:
    """The same numbers for sentencepiece."""
    times = [time.process_time()]
    model = sentencepiece.SentencePieceProcessor(model_proto=proto)
    times.append(time.process_time())
    ids = model.encode(list(lines), out_type=int, num_threads=1)
    times.append(time.process_time())
    model.decode(ids, num_threads=1)
    times.append(time.process_time())
    return [*(after - before for before, after in zip(times, times[1:], strict=False)), float(sum(map(len, ids)))]


def main(argv: Sequence[str] | None = None) -> int:
    """Run with `argv` (default: the process's) and return the exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
