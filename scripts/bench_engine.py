#!/usr/bin/env python3
"""Measure the engine, from text to text, compared with the PyTorch path and CTranslate2 in the same run.

    scripts/bench_engine.py MODEL.nmt... [--nmt RUN...] [--ctranslate2 FOLDER...] [--web FOLDER...]
        [-o engine.md]

Every case runs in a separate process, `--rounds` times, alternating with the others; the table has the medians. Times
are CPU times, so that other work on the machine has little effect. A FOLDER of --ctranslate2 needs spm.model next to
it; a FOLDER of --web is the output of scripts/build_web --model, which runs in node with one thread.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_facts import add_output, facts, in_turn, listed, put

from nmt.cli.arguments import positive
from nmt.cli.common import execute, make_parser
from nmt.compiling import engine_recipe
from nmt.compiling import library as compiled
from nmt.errors import DataError

CASE = Path(__file__).with_name("bench_engine_case.py")
DATA = "data/multi30k/test_2016_flickr"
COLUMNS = {
    "single_ms": ("one line, CPU ms", "{:.2f}"),
    "batch_per_cpu_s": ("lines a CPU second", "{:,.0f}"),
    "batch_per_s": ("lines a second", "{:,.0f}"),
    "start_cpu_s": ("start to first line, CPU s", "{:.2f}"),
    "memory_mb": ("memory, MB", "{:.0f}"),
    "bleu": ("BLEU", "{:.2f}"),
}


class Case(NamedTuple):
    """A measured case; `kind` is a key of KINDS in bench_engine_case.py, or "web"."""

    kind: str
    model: str
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the case in the table."""
        words = [
            self.kind,
            Path(self.model).name,
            "greedy" if self.options["beam"] == 1 else f"beam {self.options['beam']}",
        ]
        words += [self.options["kernels"]] * (self.options["kernels"] is not None)
        return ", ".join([*words, f"{self.options['threads']} threads"] if self.options["threads"] > 1 else words)


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_engine.py", "Measure the engine on the CPU.")
    parser.add_argument("models", nargs="*", metavar="MODEL.nmt", help="output of nmt-export --format engine")
    parser.add_argument("--nmt", nargs="*", default=[], metavar="RUN", help="run directories, translated by PyTorch")
    parser.add_argument("--ctranslate2", nargs="*", default=[], metavar="FOLDER", help="models of CTranslate2")
    parser.add_argument("--web", nargs="*", default=[], metavar="FOLDER", help="web pages with a model, run in node")
    parser.add_argument("--precision", default="int8", help="of --nmt and --ctranslate2 (default: int8)")
    parser.add_argument("--kernels", nargs="*", default=[None], metavar="NAME", help="instruction sets of the engine")
    parser.add_argument("--source", default=f"{DATA}.en.gz", metavar="FILE", help=f"default {DATA}.en.gz")
    parser.add_argument("--reference", default=f"{DATA}.de.gz", metavar="FILE", help=f"default {DATA}.de.gz")
    parser.add_argument("--beam", nargs="+", type=positive, default=[1, 5], metavar="N", help="default 1 and 5")
    parser.add_argument("--threads", nargs="+", type=positive, default=[1], metavar="N", help="default 1")
    parser.add_argument("--lines", type=positive, default=300, metavar="N", help="one at a time (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=positive, default=3, metavar="N", help="times in a process; the best one is reported"
    )
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="of processes (default: %(default)s)")
    add_output(parser)
    return parser


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """All requested cases."""
    for threads in arguments.threads:
        for beam in arguments.beam:
            common = {
                "beam": beam,
                "threads": threads,
                "precision": arguments.precision,
                "kernels": None,
                "library": str(compiled(engine_recipe(everywhere=True))),
                "source": arguments.source,
                "reference": arguments.reference,
                "lines": arguments.lines,
                "repeats": arguments.repeats,
            }
            for model in arguments.models:
                for kernels in arguments.kernels:
                    yield Case("engine", model, {**common, "kernels": kernels})
            yield from (Case("nmt", model, common) for model in arguments.nmt)
            yield from (Case("ctranslate2", model, common) for model in arguments.ctranslate2)
            if threads == 1:
                yield from (Case("web", model, common) for model in arguments.web)


def measured(case: Case) -> dict[str, float]:
    """Measure a case once, in a new process."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(case.options["threads"])}
    command = [sys.executable, str(CASE), case.kind, case.model, json.dumps(case.options)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise DataError(f"{case.name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def others(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Names and versions of the other programs that are measured."""
    if arguments.ctranslate2:
        yield "CTranslate2", importlib.metadata.version("ctranslate2")
    if arguments.web:
        yield "node", subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """Medians, in Markdown."""
    lines = ["| case | " + " | ".join(title for title, _ in COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, found in results.items():
        cells = [form.format(statistics.median(one[key] for one in found)) for key, (_, form) in COLUMNS.items()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run(arguments: argparse.Namespace) -> int:
    """Measure all cases in turn, report."""
    results = in_turn({case.name: case for case in cases(arguments)}, measured, rounds=arguments.rounds)
    stated = facts("bench_engine.py", threads=max(arguments.threads), peer=None)
    stated["versions"] += "".join(f", {name} {found}" for name, found in others(arguments))
    text = "\n".join([*listed(stated), "", table(results), ""])
    put(arguments.output, text, {"facts": stated, "results": results})
    return 0


def main() -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run)


if __name__ == "__main__":
    sys.exit(main())
