#!/usr/bin/env python3
"""Measure training on this machine: real target tokens per second, peak memory, padding, time by part; and a peer.

    scripts/bench_train.py [--unit gru lrn atr] [--peer PYTHON CONFIG] [-o train-cpu.md]

Padding is never counted. Every case runs in a separate process, `--repeats` times, alternating with the others. The
built-in sizes are copied from JoeyNMT's GRU: hidden 512, two directions of 256 in the encoder, embeddings 256, 8,000
joint subwords, one layer, 115 sentences per update; `rnnsearch` is the nearest architecture. `--peer` takes the Python
of an installed JoeyNMT and its configuration; `--eager` adds eager PyTorch on the same batches (eager_model.py), once
as a program runs and once with the memory kept that glibc would return.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import yaml
from bench_facts import add_output, earlier, facts, listed, put
from bench_peer import USERS_ENVIRONMENT, run_joeynmt
from bench_train_case import PARTS

from nmt.cli.arguments import natural, positive
from nmt.cli.common import execute, make_parser
from nmt.errors import DataError
from nmt.system import available_cores

CASE, EAGER_CASE = (Path(__file__).with_name(f"{name}.py") for name in ("bench_train_case", "eager_model"))
PEER = "JoeyNMT"
EAGER = {"eager PyTorch": "as-is", "eager PyTorch, memory kept": "keep"}
UNITS = ("gru", "lrn", "atr")
NO_VALIDATION = (
    "data.dev=null",
    "data.test=null",
    "evaluation.metrics=[]",
    "training.early_stopping_metric=loss",
    "training.patience=null",
)

Result = dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_train.py", "Measure training speed, memory and time by part on the CPU.")
    parser.add_argument("--unit", nargs="+", default=list(UNITS), metavar="NAME", help="units in the built-in sizes")
    parser.add_argument("--architecture", nargs="+", default=["rnnsearch"], metavar="NAME", help="default rnnsearch")
    parser.add_argument("--config", nargs="+", metavar="FILE", help="configurations instead of the built-in sizes")
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="as for nmt-train"
    )
    parser.add_argument("--hidden", type=positive, default=512, metavar="N", help="default 512")
    parser.add_argument("--encoder-hidden", type=positive, default=256, metavar="N", help="each direction, default 256")
    parser.add_argument("--embedding", type=positive, default=256, metavar="N", help="default 256")
    parser.add_argument("--vocabulary", type=positive, default=8000, metavar="N", help="joint subwords, default 8000")
    parser.add_argument("--sentences", type=positive, default=115, metavar="N", help="of an update, default 115")
    parser.add_argument("--data", default="data/multi30k/train", metavar="PREFIX", help="default data/multi30k/train")
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    parser.add_argument("--threads", type=positive, default=available_cores(), metavar="N", help="default: all cores")
    parser.add_argument("--updates", type=positive, default=40, metavar="N", help="measured updates, default 40")
    parser.add_argument("--warm-up", type=natural, default=10, metavar="N", help="updates before those, default 10")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="default 3")
    parser.add_argument("--peer", nargs=2, metavar=("PYTHON", "CONFIG"), help="an installed JoeyNMT")
    parser.add_argument("--peer-updates", type=positive, default=25, metavar="N", help="default 25, 5 of them warm-up")
    parser.add_argument("--eager", action="store_true", help="the same batches in eager PyTorch (eager_model.py)")
    parser.add_argument("--work", default="runs/bench_train", metavar="DIR", help="for tokenizer and encoded text")
    parser.add_argument("--append", action="store_true", help="add to the repeats in the JSON file next to -o")
    add_output(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Prepare the text, measure all cases in turn, report."""
    work = Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    cases: dict[str, Callable[[], Result]] = {}
    if arguments.peer:
        cases[PEER] = partial(_peer, arguments, work)
    for name, file, folder in _configurations(arguments, work):
        for precision in arguments.precision:
            for peer, memory in EAGER.items() if arguments.eager else ():
                cases[f"{name} {precision}, {peer}"] = partial(_case, arguments, file, folder, precision, memory)
            cases[f"{name} {precision}"] = partial(_case, arguments, file, folder, precision)
    results: dict[str, list[Result]] = {name: [] for name in cases}
    if arguments.append:
        results |= earlier(arguments.output).get("results", {})
    for number in range(arguments.repeats):
        for name, measure in cases.items():
            result = measure()
            results.setdefault(name, []).append(result)
            rate = result["target_tokens_per_second"]
            print(f"{number + 1}/{arguments.repeats} {name}: {rate:,.0f} target tokens/s", file=sys.stderr, flush=True)
    stated = facts("bench_train.py", threads=arguments.threads, peer=arguments.peer)
    put(arguments.output, report(results, stated), {"facts": stated, "results": results})
    return 0


def _configurations(arguments: argparse.Namespace, work: Path) -> list[tuple[str, Path, Path]]:
    """Name, resolved configuration file and run directory of all cases; the text is prepared."""
    from nmt.config import dump, load_config
    from nmt.data.prepare import prepare

    if arguments.config:
        sources = [(Path(file).stem, file, [], work / Path(file).stem) for file in arguments.config]
    else:
        folder = work / f"joint{arguments.vocabulary}"  # one vocabulary for all units
        sources = [
            (f"{architecture} {unit}", f"multi30k_{unit}.yaml", _sizes(arguments, architecture), folder)
            for architecture in arguments.architecture
            for unit in arguments.unit
        ]
    found = []
    for name, source, sizes, folder in sources:
        config = load_config(source, [*sizes, *NO_VALIDATION, *arguments.overrides])
        file = work / f"{name.replace(' ', '_')}.yaml"
        file.write_text(dump(config), encoding="utf-8")
        prepare(config, folder)
        found.append((name, file, folder))
    return found


def _sizes(arguments: argparse.Namespace, architecture: str) -> list[str]:
    return [
        f"model.architecture={architecture}",
        f"data.train={arguments.data}",
        f"data.tokenizer_options={{model_type: bpe, vocab_size: {arguments.vocabulary}}}",
        f"model.hidden_size={arguments.hidden}",
        f"model.encoder_hidden_size={arguments.encoder_hidden}",
        "model.context_aware_encoder=false",
        f"model.embedding_size={arguments.embedding}",
        "model.tie_embeddings=none",
        "model.dropout=0.3",
        "training.batch_tokens=null",
        f"training.batch_sentences={arguments.sentences}",
        "training.ema_decay=0",
    ]


def _case(arguments: argparse.Namespace, file: Path, folder: Path, precision: str, eager: str | None = None) -> Result:
    """Of nmt, or of its peer in eager PyTorch with `eager` done about memory."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    content["training"]["precision"] = precision
    exact = file.with_name(f"{file.stem}.{precision}.yaml")
    exact.write_text(yaml.safe_dump(content), encoding="utf-8")
    program, options = (CASE, []) if eager is None else (EAGER_CASE, [eager])
    given = [str(exact), str(folder), str(arguments.warm_up), str(arguments.updates), *options]
    command = [sys.executable, str(program), *given]
    own = os.environ if eager is None else USERS_ENVIRONMENT
    environment = {**own, "OMP_NUM_THREADS": str(arguments.threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise DataError(f"{exact}: could not be measured: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def _peer(arguments: argparse.Namespace, work: Path) -> Result:
    python, config = arguments.peer
    environment = {**USERS_ENVIRONMENT, "OMP_NUM_THREADS": str(arguments.threads)}
    return run_joeynmt(python, Path(config), work=work, updates=arguments.peer_updates, environment=environment)


def report(results: dict[str, list[Result]], stated: dict[str, str]) -> str:
    """Markdown: one table of speed and memory, one of time by part; medians over the repeats."""
    lines = ["# Training on a CPU", "", *listed(stated), ""]
    lines += ["Medians over the repeats, in brackets the lowest and highest; padding is never counted.", ""]
    peer = median(results[PEER], "target_tokens_per_second") if results.get(PEER) else None
    head = ["case", "target tokens/s", "times JoeyNMT", "target tokens/CPU s", "times eager PyTorch", "peak memory"]
    lines += [f"| {' | '.join([*head, 'padding', 'parameters', 'repeats'])} |", "|-" * 9 + "|"]
    for name, runs in results.items():
        rates = [run["target_tokens_per_second"] for run in runs]
        ratio = f"{statistics.median(rates) / peer:.2f} x" if peer else "-"
        by_cpu, times = "-", "-"
        if all("target_tokens_per_cpu_second" in run for run in runs):
            used = [run["target_tokens_per_cpu_second"] for run in runs]
            by_cpu = f"{statistics.median(used):,.0f} ({min(used):,.0f}-{max(used):,.0f})"
            peers = [results[f"{name}, {one}"] for one in EAGER if f"{name}, {one}" in results]
            if peers:
                times = " / ".join(
                    f"{statistics.median(used) / median(found, 'target_tokens_per_cpu_second'):.2f} x"
                    for found in peers
                )
        padding = f"{median(runs, 'padding'):.1%}" if "padding" in runs[0] else "-"
        parameters = f"{runs[0]['parameters'] / 1e6:.1f}M" if runs[0].get("parameters") else "-"
        spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
        memory = f"{median(runs, 'peak_mb'):,.0f} MB"
        lines.append(
            f"| {name} | {spread} | {ratio} | {by_cpu} | {times} | {memory} | {padding} | {parameters} | {len(runs)} |"
        )
    lines += ["", "Milliseconds of an update by part:", ""]
    lines += [f"| case | {', ms | '.join(PARTS)}, ms | all parts, ms |", "|-" * (len(PARTS) + 2) + "|"]
    for name, runs in results.items():
        if "milliseconds" in runs[0]:
            parts = [statistics.median(run["milliseconds"][part] for run in runs) for part in PARTS]
            lines.append(f"| {name} | {' | '.join(f'{part:.1f}' for part in [*parts, sum(parts)])} |")
    return "\n".join(lines) + "\n"


def median(runs: Sequence[Result], field: str) -> float:
    """The median of a field over the repeats."""
    return statistics.median(float(run[field]) for run in runs)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
