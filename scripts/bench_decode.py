#!/usr/bin/env python3
"""Measure translation on this machine, from text to text with the model loaded: speed and BLEU, compared with a peer.

    scripts/bench_decode.py RUN... [--shortlist] [--peer PYTHON CONFIG CHECKPOINT] [-o decode-cpu.md]

Every case runs in a separate process, `--repeats` times, alternating with the others. Long measurements can be split
over several calls with `--append`. `--peer` takes the Python of an installed JoeyNMT, a configuration and a checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_facts import add_output, earlier, facts, put
from bench_peer import translate_joeynmt

from nmt.cli.arguments import natural, positive
from nmt.cli.common import execute, make_parser
from nmt.errors import DataError
from nmt.system import available_cores

CASE = Path(__file__).with_name("bench_decode_case.py")
PEER = "JoeyNMT"
DATA = "data/multi30k/test_2016_flickr"

Result = dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_decode.py", "Measure the speed and BLEU of translation on the CPU.")
    parser.add_argument("run", nargs="+", metavar="RUN", help="run directories, as nmt-translate takes them")
    parser.add_argument("--source", default=f"{DATA}.en.gz", metavar="FILE", help=f"default {DATA}.en.gz")
    parser.add_argument("--reference", default=f"{DATA}.de.gz", metavar="FILE", help=f"default {DATA}.de.gz")
    parser.add_argument("--beam", nargs="+", type=positive, default=[1, 5], metavar="N", help="default 1 and 5")
    parser.add_argument(
        "--precision", nargs="+", choices=("fp32", "bf16", "int8"), default=["fp32", "bf16", "int8"], help="default all"
    )
    parser.add_argument("--max-length-offset", type=natural, metavar="N", help="as for nmt-translate; default: of RUN")
    parser.add_argument("--shortlist", action="store_true", help="also measure with a shortlist of the training text")
    parser.add_argument("--train", metavar="PREFIX", help="the training text, if it was moved after training")
    parser.add_argument("--only-shortlist", action="store_true", help="measure only with a shortlist")
    parser.add_argument("--single", action="store_true", help="one sentence at a time instead of in batches")
    parser.add_argument("--lines", type=positive, metavar="N", help="number of source lines to use; default: all")
    parser.add_argument("--threads", type=positive, default=available_cores(), metavar="N", help="default: all cores")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="default 3")
    parser.add_argument("--peer", nargs=3, metavar=("PYTHON", "CONFIG", "CHECKPOINT"), help="an installed JoeyNMT")
    parser.add_argument("--work", default="runs/bench_decode", metavar="DIR", help="directory for the shortlists")
    parser.add_argument("--append", action="store_true", help="add to the repeats in the JSON file next to -o")
    add_output(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Make the shortlists, measure all cases in turn, report."""
    work = Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    cases = dict(_cases(arguments, work))
    results: dict[str, list[Result]] = {}
    commands: list[str] = []
    if arguments.append and (before := earlier(arguments.output)):
        results, commands = before["results"], before["commands"]
    for number in range(arguments.repeats):
        for name, measure in cases.items():
            result = measure()
            results.setdefault(name, []).append(result)
            rate = result["sentences_per_second"]
            print(f"{number + 1}/{arguments.repeats} {name}: {rate:,.1f} sentences/s", file=sys.stderr, flush=True)
    stated = facts("bench_decode.py", threads=arguments.threads, peer=arguments.peer)
    commands.append(stated.pop("command"))
    del stated["threads"]  # each case states its own number
    record = {"facts": stated, "commands": commands, "results": results}
    put(arguments.output, report(results, stated, commands), record)
    return 0


def _cases(arguments: argparse.Namespace, work: Path) -> Iterator[tuple[str, Callable[[], Result]]]:
    threads = f"{arguments.threads} thread{'s' if arguments.threads > 1 else ''}"
    if arguments.peer:
        for beam in arguments.beam:
            yield f"{PEER}, {_search(beam)}, fp32, {threads}", partial(_peer, arguments, work, beam)
    shortlists = [False] * (not arguments.only_shortlist) + [True] * (arguments.shortlist or arguments.only_shortlist)
    for folder, beam, precision, short in product(arguments.run, arguments.beam, arguments.precision, shortlists):
        words = [Path(folder).name, _search(beam), precision, threads]
        words += ["shortlist"] * short + ["one at a time"] * arguments.single
        options = {
            "beam": beam,
            "precision": precision,
            "shortlist": _shortlist(arguments, folder, work) if short else None,
            "max_length_offset": arguments.max_length_offset,
            "single": arguments.single,
            "source": arguments.source,
            "reference": arguments.reference,
            "lines": arguments.lines,
        }
        yield ", ".join(words), partial(_case, folder, options, arguments.threads)


def _search(beam: int) -> str:
    return "greedy" if beam == 1 else f"beam {beam}"


def _shortlist(arguments: argparse.Namespace, folder: str, work: Path) -> str:
    """The file of this run's shortlist, made with the default sizes of nmt-shortlist."""
    file = work / f"{Path(folder).name}.shortlist.safetensors"
    if not file.exists():
        train = ["--train", arguments.train] if arguments.train else []
        _checked(
            [sys.executable, "-m", "nmt.shortlisting.command", folder, "-o", str(file), *train],
            f"{folder}: no shortlist",
        )
    return str(file)


def _case(folder: str, options: dict[str, Any], threads: int) -> Result:
    command = [sys.executable, str(CASE), folder, json.dumps(options)]
    out = _checked(command, f"{folder}: could not be measured", OMP_NUM_THREADS=str(threads))
    result: Result = json.loads(out.splitlines()[-1])
    return result


def _checked(command: Sequence[str], failure: str, **environment: str) -> str:
    """The output of the command. Raises DataError with its last line if it fails."""
    path = os.pathsep.join([str(CASE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    found = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=found, check=False)
    if done.returncode != 0:
        raise DataError(f"{failure}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout


def _peer(arguments: argparse.Namespace, work: Path, beam: int) -> Result:
    from sacrebleu.metrics.bleu import BLEU

    from nmt.data.text import read_lines

    lines, references = list(read_lines(arguments.source)), list(read_lines(arguments.reference))
    lines = lines[: arguments.lines]
    python, config, checkpoint = arguments.peer
    seconds, found = translate_joeynmt(
        *(python, Path(config), Path(checkpoint)),
        beam=beam,
        lines=lines,
        work=work,
        OMP_NUM_THREADS=str(arguments.threads),
    )
    bleu = BLEU().corpus_score(found, [references]).score if len(lines) == len(references) else None
    words = sum(len(line.split()) for line in found) / len(found)
    return {"sentences_per_second": len(lines) / seconds, "bleu": bleu, "words": words}


def report(results: dict[str, list[Result]], stated: dict[str, str], commands: Sequence[str]) -> str:
    """Markdown: a table of speed and BLEU; medians over the repeats."""
    beside = any(name.startswith(PEER) for name in results)
    title = f"# Translation on a CPU, compared with {PEER}" if beside else "# Settings of translation on a CPU"
    lines = [title, "", *(f"- {name}: {value}" for name, value in stated.items())]
    lines += [f"- command: `{command}`" for command in commands]
    lines += ["", "From text to text, loading excluded; medians over the repeats, in brackets the lowest and highest."]
    if beside:
        lines += ["`times JoeyNMT` compares the same search in the same number of threads, in batches."]
    lines += [
        "`words a line` is the mean length of a translation: longer translations take more time, so a ratio means"
    ]
    lines += ["little between models whose BLEU and lengths are far apart.", ""]
    column = " times JoeyNMT |" if beside else ""
    lines += [
        f"| case | sentences/s | ms a sentence |{column} BLEU | words a line | peak memory | parameters | repeats |"
    ]
    lines += ["|-|-|-|-|-|-|-|-|" + "-|" * beside]
    for name, runs in results.items():
        rates = [run["sentences_per_second"] for run in runs]
        rate = statistics.median(rates)
        peer = _peer_rate(name, results)
        ratio = (f" {rate / peer:.2f} x |" if peer else " - |") if beside else ""
        bleu = f"{runs[0]['bleu']:.2f}" if runs[0]["bleu"] is not None else "-"
        memory = f"{statistics.median(run['peak_mb'] for run in runs):,.0f} MB" if "peak_mb" in runs[0] else "-"
        parameters = f"{runs[0]['parameters'] / 1e6:.1f}M" if "parameters" in runs[0] else "-"
        speed = f"{rate:,.1f} ({min(rates):,.1f}-{max(rates):,.1f}) | {1000 / rate:,.2f}"
        lines.append(
            f"| {name} | {speed} |{ratio} {bleu} | {runs[0]['words']:.1f} | {memory} | {parameters} | {len(runs)} |"
        )
    return "\n".join(lines) + "\n"


def _peer_rate(name: str, results: dict[str, list[Result]]) -> float | None:
    """Sentences per second of the peer with this case's search and threads; None if it was not measured."""
    _, search, _, threads, *rest = name.split(", ")
    runs = results.get(f"{PEER}, {search}, fp32, {threads}")
    if not runs or "one at a time" in rest or name.startswith(PEER):
        return None
    return statistics.median(run["sentences_per_second"] for run in runs)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
