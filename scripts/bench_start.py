#!/usr/bin/env python3
"""Measure waiting times of users: from the start of nmt-train to its first update, and nmt-translate of one sentence.

    scripts/bench_start.py --work DIR [--model RUN] [--data DIR] [--rounds N] [-o startup.md]

The first round fills the caches (encoded text, compiled kernels, files in memory) and does not count. Each training
process is killed as soon as it has reported its first update.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_environment import ENVIRONMENT  # without the variables that nmt.cli sets
from bench_facts import add_output, facts, listed, put

from nmt.cli.arguments import positive
from nmt.cli.common import execute, make_parser
from nmt.errors import DataError
from nmt.system import available_cores

SENTENCE = "A man in a blue shirt is standing on a ladder cleaning a window.\n"


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_start.py", "Measure the time until the first update and the first translation.")
    parser.add_argument("--config", default="multi30k_lrn.yaml", metavar="FILE", help="default: multi30k_lrn.yaml")
    parser.add_argument("--data", metavar="DIR", default="data/multi30k", help="default: data/multi30k")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="for the run")
    parser.add_argument("--model", metavar="MODEL", nargs="*", default=[], help="runs or files to translate with")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="of each case (default: 7)")
    add_output(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure the cases one after the other and report."""
    results: dict[str, list[float]] = {}
    for name, measure in cases(arguments).items():
        print(name, file=sys.stderr, flush=True)
        results[name] = [measure() for _ in range(arguments.rounds + 1)][1:]
    stated = facts("bench_start.py", threads=available_cores(), peer=None)
    put(arguments.output, report(results, stated), {"facts": stated, "results": results})
    return 0


def cases(arguments: argparse.Namespace) -> dict[str, Callable[[], float]]:
    """All measurements by name."""
    settings = {
        "data.train": f"{arguments.data}/train",
        "data.dev": f"{arguments.data}/val",
        "data.test": "null",
        "training.log_every": "1",
        "run_dir": str(arguments.work / "run"),
    }
    given = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    training = command("train", arguments.config, *given)
    found: dict[str, Callable[[], float]] = {f"`nmt-train {arguments.config}`": partial(first_update, training)}
    for model in arguments.model:
        name = Path(model).name
        found[f"`nmt-translate {name}`"] = partial(one_sentence, command("translate", model))
        found[f"`nmt-translate {name} --beam-size 1`"] = partial(
            one_sentence, command("translate", model, "--beam-size", "1")
        )
    return found


def command(name: str, *arguments: str) -> list[str]:
    """A command of this checkout in a new interpreter."""
    return [sys.executable, "-m", f"nmt.cli.{name}", *arguments]


def first_update(words: Sequence[str]) -> float:
    """Seconds until nmt-train has logged update 1."""
    started = time.perf_counter()
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if " update 1 " in line:
                taken = time.perf_counter() - started
                process.kill()
                return taken
    raise DataError(f"nmt-train ended without an update: {said[-1].strip() if said else 'no output'}")


def one_sentence(words: Sequence[str]) -> float:
    """Seconds that nmt-translate takes for a sentence."""
    started = time.perf_counter()
    done = subprocess.run(words, input=SENTENCE, text=True, capture_output=True, env=ENVIRONMENT, check=False)
    if done.returncode:
        raise DataError(f"nmt-translate: {(done.stderr.splitlines() or ['failed'])[-1]}")
    return time.perf_counter() - started


def report(results: dict[str, list[float]], stated: dict[str, str]) -> str:
    """The facts and a table of medians."""
    rows = [
        f"| {name} | {statistics.median(taken):.2f} | {min(taken):.2f} to {max(taken):.2f} |"
        for name, taken in results.items()
    ]
    return "\n".join(
        [*listed(stated), "", "| command | seconds, median | seconds, lowest to highest |", "|-|-|-|", *rows, ""]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
