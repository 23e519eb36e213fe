#!/usr/bin/env python3
"""Where the engine's time goes: the share of each of its functions, by `perf` of Linux.

    scripts/profile_engine.py MODEL.nmt... --source FILE [--beam N] [--kernels NAME] [--single] [--rows N]

Several models are an ensemble. All lines are translated by one thread; `--single`: one at a time. What is not a
function of the engine is Python, the C library and Linux.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_engine_case import read
from bench_facts import add_output, facts, listed, put

from nmt.cli.arguments import positive
from nmt.cli.common import execute, make_parser
from nmt.compiling import engine_recipe
from nmt.compiling import library as compiled
from nmt.errors import DataError

SECONDS = 8
"""Of CPU time that are profiled, about."""


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/profile_engine.py", "Profile the engine by perf.")
    parser.add_argument("models", nargs="+", metavar="MODEL.nmt")
    parser.add_argument("--source", required=True, metavar="FILE", help="text, also packed by gzip")
    parser.add_argument("--beam", type=positive, default=1, metavar="N", help="default: 1, greedy search")
    parser.add_argument("--kernels", metavar="NAME", help="instruction set (default: the best)")
    parser.add_argument("--single", action="store_true", help="one line at a time, not in batches")
    parser.add_argument("--rows", type=positive, default=20, metavar="N", help="of the table (default: %(default)s)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    add_output(parser)
    return parser


def work(arguments: argparse.Namespace) -> None:
    """What is profiled."""
    import time

    from nmt.light import Translator

    models = arguments.models if len(arguments.models) > 1 else arguments.models[0]
    translator = Translator(models, library=str(compiled(engine_recipe(everywhere=True))), kernels=arguments.kernels)
    lines = read(arguments.source)
    parts = [[line] for line in lines] if arguments.single else [lines]
    while time.process_time() < SECONDS:
        for part in parts:
            translator.texts(part, beam_size=arguments.beam, threads=1, scores=False)


def run(arguments: argparse.Namespace) -> int:
    """Profile in a new process, report."""
    if arguments.child:
        work(arguments)
        return 0
    if not shutil.which("perf"):
        raise DataError("perf: not found. It comes with Linux (Debian: linux-perf)")
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, __file__, *sys.argv[1:], "--child"]
        recorded = ["perf", "record", "-q", "-F", "2000", "-o", file.name, *command]
        subprocess.run(recorded, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        shown = ["perf", "report", "-i", file.name, "--no-children", "--stdio", "-F", "overhead,dso,symbol"]
        report = subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"^ +([\d.]+)% +(\S+) +\[.\] (\S+)", report, re.MULTILINE)
    own = Path(compiled(engine_recipe(everywhere=True))).name
    inside = [(name, float(share)) for share, library, name in rows if library == own]
    shares = [*inside[: arguments.rows], ("other functions of the engine", sum(x for _, x in inside[arguments.rows :]))]
    shares.append(("Python and the system", 100 - sum(x for _, x in inside)))
    stated = facts("profile_engine.py", threads=1, peer=None)
    table = ["| function | share of CPU time |", "|-|-:|", *(f"| {name} | {share:.1f} % |" for name, share in shares)]
    put(arguments.output, "\n".join([*listed(stated), "", *table, ""]), {"facts": stated, "shares": dict(shares)})
    return 0


def main() -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run)


if __name__ == "__main__":
    sys.exit(main())
