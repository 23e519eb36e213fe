#!/usr/bin/env python3
"""Measure the output layer with its loss, forward and backward: time and memory of the plain and the chunked form.

    scripts/bench_loss.py [--widths 256 512] [-o loss.md]

The plain form is torch's linear map and cross entropy with autograd; the matrix products alone
are the lower bound for any loss. The forms alternate; memory is measured in a separate process for each form.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import torch.nn.functional as F
from bench_facts import add_output, facts, listed, put

from nmt.cli.arguments import positive
from nmt.cli.common import execute, make_parser
from nmt.ops.linear_cross_entropy import linear_cross_entropy
from nmt.system import available_cores, keep_large_blocks

SMOOTHING = 0.1


def forms(tokens: int, width: int, words: int, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """The compared forms; each call does one forward and backward pass."""
    torch.manual_seed(1)
    features = torch.randn(tokens, width).to(dtype).requires_grad_()
    table = (0.05 * torch.randn(words, width)).requires_grad_()
    targets, weights = torch.randint(0, words, (tokens,)), torch.full((tokens,), 1 / tokens)
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16)

    def products() -> None:
        with torch.no_grad():
            x, w = features, table.to(dtype)
            logits = x @ w.t()
            _ = logits @ w, logits.t() @ x

    def plain() -> None:
        features.grad = table.grad = None
        with autocast:
            logits = F.linear(features, table)
        F.cross_entropy(logits.float(), targets, label_smoothing=SMOOTHING).backward()

    def chunked() -> None:
        features.grad = table.grad = None
        with autocast:
            loss, *_ = linear_cross_entropy(
                features, table, targets=targets, weights=weights, label_smoothing=SMOOTHING
            )
        loss.backward()

    return {"matrix products alone": products, "plain": plain, "chunked": chunked}


def resident(field: str) -> float:
    """VmRSS or VmHWM of this process in MiB."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{field}:\s+(\d+) kB$", text, flags=re.M)
    assert found is not None
    return int(found[1]) / 1024


def peak_memory(name: str, sizes: tuple[int, int, int], dtype: torch.dtype, threads: int) -> float:
    """Peak growth in MiB of the resident memory of a new process during two calls."""
    torch.set_num_threads(threads)
    forms(64, 64, 64, dtype)[name]()  # loads libraries and compiles kernels
    run = forms(*sizes, dtype)[name]
    before = resident("VmRSS")
    run()
    run()
    return resident("VmHWM") - before


def times(sizes: tuple[int, int, int], dtype: torch.dtype, threads: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each call of each form, alternating, in a process that keeps its memory as training does."""
    keep_large_blocks()
    torch.set_num_threads(threads)
    runs = forms(*sizes, dtype)
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 2):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            if number >= 2:
                taken[name].append(1000 * (time.perf_counter() - started))
    return taken


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_loss.py", "Measure the output layer and its loss on the CPU.")
    parser.add_argument("--tokens", type=positive, default=2048, metavar="N", help="target words (default: 2048)")
    parser.add_argument("--words", type=positive, default=8000, metavar="N", help="of the vocabulary (default: 8000)")
    parser.add_argument("--widths", type=positive, nargs="+", default=[256, 512], metavar="N", help="default: 256 512")
    parser.add_argument("--threads", type=positive, default=available_cores(), metavar="N", help="default: all cores")
    parser.add_argument("--rounds", type=positive, default=15, metavar="N", help="timed calls (default: 15)")
    add_output(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure and report."""
    results: list[dict[str, Any]] = []
    processes = multiprocessing.get_context("spawn")
    for dtype in (torch.bfloat16, torch.float32):
        for width in arguments.widths:
            sizes = arguments.tokens, width, arguments.words
            with processes.Pool(1) as pool:
                taken = pool.apply(times, (sizes, dtype, arguments.threads, arguments.rounds))
            for name, took in taken.items():
                with processes.Pool(1) as pool:
                    peak = pool.apply(peak_memory, (name, sizes, dtype, arguments.threads))
                numbers = str(dtype).removeprefix("torch.")
                results.append({"numbers": numbers, "width": width, "form": name, "ms": took, "peak_mib": peak})
    stated = facts("bench_loss.py", threads=arguments.threads, peer=None)
    stated |= {"target words": f"{arguments.tokens:,}", "vocabulary": f"{arguments.words:,}"}
    put(arguments.output, report(results, stated), {"facts": stated, "results": results})
    return 0


def report(results: Sequence[dict[str, Any]], stated: dict[str, str]) -> str:
    """The facts and a table of medians."""
    rows = [
        f"| {one['numbers']} | {one['width']} | {one['form']} | {statistics.median(one['ms']):.1f} "
        f"| {one['peak_mib']:.0f} |"
        for one in results
    ]
    head = ["| number format | width | form | time, ms | peak memory, MiB |", "|-|-|-|-|-|"]
    return "\n".join([*listed(stated), "", *head, *rows, ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
