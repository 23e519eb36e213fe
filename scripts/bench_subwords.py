#!/usr/bin/env python3
"""Measure the cost of splitting the training text again: CPU seconds to make all batches of an epoch.

    scripts/bench_subwords.py multi30k_lrn.yaml --set data.tokenizer_options.bpe_dropout=0.1

Prints a Markdown table with three rows: the text as encoded once, split again by the compiled kernel, and split again
by Python, as on machines without a compiler. The text is encoded into a temporary directory; the rounds of the rows
alternate.

    scripts/bench_subwords.py multi30k.yaml --pieces

prints instead how many pieces a line of the validation text has, by vocabularies without and with case marks.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nmt.cli.arguments import positive
from nmt.cli.common import execute, make_parser
from nmt.config import load_config
from nmt.data.batching import collate
from nmt.data.prepare import PreparedData, prepare
from nmt.data.sampler import BatchSampler
from nmt.errors import ConfigError
from nmt.ops import native
from nmt.tasks.translation import build_sampler


def build_parser() -> argparse.ArgumentParser:
    """The configuration and the number of rounds."""
    parser = make_parser("scripts/bench_subwords.py", "Measure the cost of splitting the training text again.")
    parser.add_argument("config", metavar="CONFIG")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides")
    parser.add_argument("--pieces", action="store_true", help="count pieces without and with case marks")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="default 3")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    if arguments.pieces:
        return print_pieces(arguments)
    config = load_config(arguments.config, arguments.overrides)
    with tempfile.TemporaryDirectory() as folder:
        data = prepare(config, folder)
        if not any(data.sides):
            raise ConfigError("--set data.tokenizer_options.bpe_dropout or unigram_alpha: this text is always the same")
        samplers = [build_sampler(config, data.train), *[build_sampler(config, data.train, sides=data.sides)] * 2]
        seconds: list[list[float]] = [[] for _ in samplers]
        for number in range(arguments.rounds):
            for case, sampler in enumerate(samplers):
                with without_kernels(case == 2):
                    seconds[case].append(epoch_seconds(sampler, data, epoch=number))
    estimate = samplers[1].estimate
    print(f"\n{len(data.train):,} pairs, {estimate.growth:.3g} times the tokens\n")
    print("| the batches of an epoch | CPU seconds | lowest | highest |\n|-|-:|-:|-:|")
    for name, found in zip(("as encoded", "anew, compiled", "anew, Python"), seconds, strict=True):
        print(f"| {name} | {statistics.median(found):.2f} | {min(found):.2f} | {max(found):.2f} |")
    return 0


def print_pieces(arguments: argparse.Namespace) -> int:
    """Pieces a line of the validation text by vocabularies without and with case marks, in a table."""
    found = []
    for case in ("null", "markup"):
        config = load_config(arguments.config, [*arguments.overrides, f"data.tokenizer_options.case={case}"])
        with tempfile.TemporaryDirectory() as folder:
            corpus = prepare(config, folder).dev
            if corpus is None:
                raise ConfigError("data.dev: is needed")
            found.append([float(sizes.mean()) - 1 for sizes in (corpus.source_lengths, corpus.target_lengths)])
    print("\n| pieces a line | without | with | more |\n|-|-:|-:|-:|")
    for side, plain, marked in zip(("source", "target"), *found, strict=True):
        print(f"| {side} | {plain:.2f} | {marked:.2f} | {100 * (marked / plain - 1):+.1f} % |")
    return 0


@contextmanager
def without_kernels(chosen: bool) -> Iterator[None]:
    """Run the block as on a machine without a compiler, if `chosen`."""
    before = native.problem
    if chosen:
        native.problem = lambda source=None: "this is what is measured"
    try:
        yield
    finally:
        native.problem = before


def epoch_seconds(sampler: BatchSampler, data: PreparedData, *, epoch: int) -> float:
    """CPU seconds in which this process makes all batches of an epoch."""
    started = time.process_time()
    for number in range(sampler.pools):
        batches, drawn = sampler.pool(epoch, number)
        for rows in batches:
            collate(drawn or data.train, rows)
    return time.process_time() - started


def main(argv: Sequence[str] | None = None) -> int:
    """Run with `argv` (default: the process's) and return the exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
