#!/usr/bin/env python3
"""Measure training with one process and with several on the CPUs of this machine: real target tokens per second.

    scripts/bench_distributed.py [--set key=value] [--append] [-o distributed.md]

There are four cases: one process with one thread; one process with a thread for each core; a process with one thread
for each core; and the latter with updates larger by the number of processes. Padding is never counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_facts import add_output, earlier, facts, listed, put
from bench_train import NO_VALIDATION, median

from nmt.cli.arguments import natural, positive
from nmt.cli.common import execute, make_parser
from nmt.errors import DataError
from nmt.system import available_cores

Result = dict[str, Any]
EXCHANGES = 5
"""Exchanges of gradients that are timed separately, when all processes are ready for them."""


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_distributed.py", "Measure training with several processes on this machine.")
    parser.add_argument("--config", default="multi30k_gru.yaml", metavar="FILE", help="default multi30k_gru.yaml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--updates", type=positive, default=20, metavar="N", help="measured updates, default 20")
    parser.add_argument("--warm-up", type=natural, default=5, metavar="N", help="updates before those, default 5")
    parser.add_argument("--work", default="runs/bench_distributed", metavar="DIR", help="for the encoded text")
    parser.add_argument("--append", action="store_true", help="add to the repeats in the JSON file next to -o")
    add_output(parser)
    parser.add_argument("--measure", metavar="FILE", help=argparse.SUPPRESS)  # for the processes that torchrun starts
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure each case once and report it together with the measurements of earlier calls."""
    if arguments.measure:
        measure(arguments)
        return 0
    from nmt.config import load_config
    from nmt.data.prepare import prepare

    prepare(load_config(arguments.config, [*NO_VALIDATION, *arguments.overrides]), arguments.work)
    results: dict[str, list[Result]] = earlier(arguments.output).get("results", {}) if arguments.append else {}
    cores = available_cores()
    for processes, threads, times in ((1, 1, 1), (1, cores, 1), (cores, 1, 1), (cores, 1, cores)):
        result = _case(arguments, processes, threads=threads, times=times)
        name = f"{processes} process{'es' * (processes > 1)} x {threads} thread{'s' * (threads > 1)}"
        results.setdefault(name + f", updates {times} times as large" * (times > 1), []).append(result)
        print(f"{name}: {result['target_tokens_per_second']:,.0f} target tokens/s", file=sys.stderr, flush=True)
    stated = facts("bench_distributed.py", threads=cores, peer=None)
    put(arguments.output, report(results, stated), {"facts": stated, "results": results})
    return 0


def _case(arguments: argparse.Namespace, processes: int, *, threads: int, times: int) -> Result:
    """Start the processes with `times` times as many batches in an update, and read the measurements of rank 0."""
    from nmt.config import load_config

    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "result.json"
        config = load_config(arguments.config, arguments.overrides)
        overrides = [*arguments.overrides, f"training.accumulate={times * config.training.accumulate}"]
        options = [part for override in overrides for part in ("--set", override)]
        sizes = ["--updates", str(arguments.updates), "--warm-up", str(arguments.warm_up), "--work", arguments.work]
        command = [sys.executable, *launcher, __file__, "--config", arguments.config, *options, *sizes]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        done = subprocess.run([*command, "--measure", str(found)], env=environment, capture_output=True, text=True)
        if done.returncode != 0 or not found.is_file():
            lines = [line for line in done.stderr.splitlines() if line.startswith("scripts/")]
            raise DataError(f"{processes} processes could not be measured: {(lines or ['no message'])[0]}")
        result: Result = json.loads(found.read_text(encoding="utf-8"))
    return result


def measure(arguments: argparse.Namespace) -> None:
    """Train as one of the processes; rank 0 writes its measurements to the file `arguments.measure`."""
    from nmt.system import keep_large_blocks

    keep_large_blocks()  # before the first tensor
    import torch

    from nmt.config import load_config
    from nmt.data.prepare import prepare
    from nmt.tasks.translation import build_batches
    from nmt.training.batches import Position
    from nmt.training.distributed import connected
    from nmt.training.run import build_updater
    from nmt.training.task import task_of

    config = load_config(arguments.config, [*NO_VALIDATION, *arguments.overrides])
    with connected("cpu") as world:
        data = prepare(config, arguments.work, progress=False)
        updater = build_updater(task_of(config), data.tokenizer, device=world.device, world=world)
        weights = list(updater.model.parameters())
        rates, seconds = [], []
        with build_batches(config, data.train, world=world, sides=data.sides).prefetched(Position(1, 0)) as groups:
            for number in range(arguments.warm_up + arguments.updates):
                started = time.perf_counter()
                group = next(groups)
                updater.update(group, step=number)
                seconds.append(time.perf_counter() - started)
                rates.append(group.target_tokens / seconds[-1])
        exchanges = []
        for _ in range(EXCHANGES):
            world.largest(0.0)  # wait for all processes
            started = time.perf_counter()
            world.add_up(weights, torch.zeros(1))
            exchanges.append(time.perf_counter() - started)
        peaks = world.gather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        result = {
            "target_tokens_per_second": statistics.median(rates[arguments.warm_up :]),
            "update_ms": 1000 * statistics.median(seconds[arguments.warm_up :]),
            "exchange_ms": 1000 * statistics.median(exchanges) if world.size > 1 else 0.0,
            "gradient_mb": sum(weight.nbytes for weight in weights) / 1e6,
            "peak_mb": max(peaks),
            "precision": updater.precision.name,
        }
        if world.is_main:
            Path(arguments.measure).write_text(json.dumps(result), encoding="utf-8")


def report(results: dict[str, list[Result]], stated: dict[str, str]) -> str:
    """Markdown: one line for each case, medians over the repeats."""
    first = next(iter(results.values()))
    alone = median(first, "target_tokens_per_second")
    lines = ["# Training by several processes on CPUs", "", *listed(stated)]
    lines += [f"- gradients: {first[0]['gradient_mb']:.1f} MB, added up by gloo; precision {first[0]['precision']}", ""]
    lines += [
        "Medians over the repeats, in brackets the lowest and highest; padding is never counted. `exchange` is the"
    ]
    lines += ["time of adding up the gradients when all processes are ready for it; an update has one.", ""]
    heads = [
        "case",
        "target tokens/s",
        "times the first case",
        "ms an update",
        "exchange, ms",
        "peak memory",
        "repeats",
    ]
    lines += [f"| {' | '.join(heads)} |", "|-" * len(heads) + "|"]
    for name, runs in results.items():
        rates = [run["target_tokens_per_second"] for run in runs]
        spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
        times = f"{median(runs, 'update_ms'):,.0f} | {median(runs, 'exchange_ms'):.1f}"
        memory = f"{median(runs, 'peak_mb'):,.0f} MB a process"
        lines.append(
            f"| {name} | {spread} | {statistics.median(rates) / alone:.2f} x | {times} | {memory} | {len(runs)} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
