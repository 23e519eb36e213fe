#!/usr/bin/env python3
"""Measure the time of one sentence on this machine's CPU: with the command, through its pipe, and from Python.

    scripts/bench_latency.py RUN [--source FILE] [-o latency.md]

Each case runs in a separate process, `--repeats` times, alternating with the others, in the caller's environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_environment import ENVIRONMENT  # without the variables that nmt.cli sets: each case sets them itself
from bench_facts import add_output, facts, listed, put

from nmt.cli.arguments import natural, positive
from nmt.cli.common import execute, make_parser
from nmt.errors import DataError
from nmt.system import available_cores

CASE = Path(__file__).with_name("bench_latency_case.py")
SOURCE = "data/multi30k/test_2016_flickr.en.gz"
ONCE = "import nmt, sys; print(nmt.load(sys.argv[1], device='cpu').translate(input(), beam_size=int(sys.argv[2])))"

Result = dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_latency.py", "Measure the latency of one sentence on the CPU.")
    parser.add_argument("run", metavar="RUN", help="run directory, as nmt-translate takes it")
    parser.add_argument("--source", default=SOURCE, metavar="FILE", help=f"default {SOURCE}")
    parser.add_argument("--lines", type=positive, metavar="N", help="number of source lines to use; default: all")
    parser.add_argument("--starts", type=positive, default=20, metavar="N", help="lines for cold starts; default 20")
    parser.add_argument(
        "--warm", type=natural, default=20, metavar="N", help="first sentences, which are not counted; default 20"
    )
    parser.add_argument("--beam", nargs="+", type=positive, default=[1, 5], metavar="N", help="default 1 and 5")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="default 3")
    add_output(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure all cases in turn and report."""
    from nmt.data.text import read_lines

    lines = list(read_lines(arguments.source))[: arguments.lines]
    results: dict[str, list[Result]] = {}
    for number in range(arguments.repeats):
        for name, measure in cases(arguments, lines).items():
            result = measure()
            results.setdefault(name, []).append(result)
            median = 1000 * statistics.median(result["latencies"])
            print(f"{number + 1}/{arguments.repeats} {name}: {median:,.1f} ms", file=sys.stderr, flush=True)
    stated = facts("bench_latency.py", threads=available_cores(), peer=None)
    put(arguments.output, report(results, stated), {"facts": stated, "results": results})
    return 0


def cases(arguments: argparse.Namespace, lines: Sequence[str]) -> dict[str, Callable[[], Result]]:
    """All measurements by name."""
    found: dict[str, Callable[[], Result]] = {}
    for beam in arguments.beam:
        search = "greedy" if beam == 1 else f"beam {beam}"
        command = [*python("-m", "nmt.cli.translate"), arguments.run, "--device", "cpu", "--beam-size", str(beam)]
        command += ["--n-best", "1"]
        once = [*python("-c", ONCE), arguments.run, str(beam)]
        found |= {
            f"{search}, command, its start included": partial(started, command, lines[: arguments.starts]),
            f"{search}, library, its start included": partial(started, once, lines[: arguments.starts]),
            f"{search}, command on a pipe": partial(piped, command, lines, warm=arguments.warm),
        }
        for name, torch_first in (("library", False), ("library, torch imported first", True)):
            options = {"beam": beam, "warm": arguments.warm, "torch_first": torch_first}
            found[f"{search}, {name}"] = partial(library, arguments.run, options, lines)
    return found


def python(*arguments: str) -> list[str]:
    """A new interpreter."""
    return [sys.executable, *arguments]


def environment() -> dict[str, str]:
    """The caller's environment, with this checkout in PYTHONPATH."""
    path = os.pathsep.join([str(CASE.parents[1]), *filter(None, [ENVIRONMENT.get("PYTHONPATH")])])
    return {**ENVIRONMENT, "PYTHONPATH": path}


def started(command: Sequence[str], lines: Sequence[str]) -> Result:
    """Translate each line in a new process, after one process that fills the file cache."""
    latencies = []
    for line in [lines[0], *lines]:
        began = time.perf_counter()
        _checked(command, f"{line}\n")
        latencies.append(time.perf_counter() - began)
    return {"latencies": latencies[1:]}


def piped(command: Sequence[str], lines: Sequence[str], *, warm: int) -> Result:
    """Send each line to one process after the answer to the previous line; also translate all lines from a file."""
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, env=environment()
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        latencies = []
        for line in [*lines[:warm], *lines]:
            began = time.perf_counter()
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            if not process.stdout.readline():
                said.seek(0)
                raise DataError(f"{command[2]} gave no answer: {said.read().strip()}")
            latencies.append(time.perf_counter() - began)
        process.stdin.close()
    return {"latencies": latencies[warm:], "lines_per_second": _whole_file(command, lines)}


def _whole_file(command: Sequence[str], lines: Sequence[str]) -> float:
    """Lines per second for a file with each line twice, as reported by the command, without loading."""
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder) / "lines", Path(folder) / "out"
        file.write_text("".join(f"{line}\n" for line in lines) * 2, encoding="utf-8")
        done = _checked([*command, "-i", str(file), "-o", str(output)], "")
    found = re.search(r"\(([\d.,]+) a second\)", " ".join(done.stderr.split()))
    if found is None:
        raise DataError(f"nmt-translate reported no speed: {done.stderr.strip()}")
    return float(found[1].replace(",", ""))


def library(folder: str, options: Result, lines: Sequence[str]) -> Result:
    """Translate with nmt.load in a program."""
    done = _checked(python(str(CASE), folder, json.dumps(options)), "".join(f"{line}\n" for line in lines))
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def _checked(command: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
    """Run a command; DataError with its last line if it fails."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment(), check=False)
    if done.returncode != 0:
        raise DataError(f"{command[1]} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done


def report(results: dict[str, list[Result]], stated: dict[str, str]) -> str:
    """Markdown: the latencies of all repeats together, and the lowest and highest median of a repeat."""
    lines = ["# Latency of one sentence", "", *listed(stated), ""]
    lines += [
        "From text to text, one sentence after the other, in ms; median and 95th percentile over all sentences and"
    ]
    lines += [
        "repeats, in brackets the medians of the repeats, lowest and highest. The last column is all sentences in"
    ]
    lines += ["one call, or from one file, loading excluded.", ""]
    lines += [
        "| case | median, ms | 95th percentile, ms | sentences | lines/s in one call |",
        "|-|-|-|-|-|",
    ]
    for name, runs in results.items():
        times = sorted(1000 * seconds for one in runs for seconds in one["latencies"])
        medians = [1000 * statistics.median(one["latencies"]) for one in runs]
        rates = [one["lines_per_second"] for one in runs if "lines_per_second" in one]
        cells = (
            name,
            f"{statistics.median(times):,.1f} ({min(medians):,.1f}-{max(medians):,.1f})",
            f"{percentile(times, 95):,.1f}",
            f"{len(times):,}",
            f"{statistics.median(rates):,.1f}" if rates else "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def percentile(ordered: Sequence[float], share: int) -> float:
    """The smallest of the sorted values such that at least `share` percent of the values do not exceed it."""
    return ordered[max(0, -(-len(ordered) * share // 100) - 1)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
