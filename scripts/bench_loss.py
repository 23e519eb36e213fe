#!/usr/bin/env python
"""Time and memory of the output layer with its loss, forward and backward: the plain and the chunked form.

Prints a Markdown table. The plain form is torch's linear map and cross entropy with autograd; the matrix products alone
are the lower bound for any loss. The forms alternate; memory is measured in a separate process for each form.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from nmt.ops.linear_cross_entropy import linear_cross_entropy
from nmt.training.allocator import keep_large_blocks

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


def times(sizes: tuple[int, int, int], dtype: torch.dtype, threads: int, rounds: int) -> dict[str, float]:
    """Median milliseconds of a call of each form, alternating, in a process that keeps its memory as training does."""
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
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--words", type=int, default=8000)
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {arguments.threads} threads, {arguments.tokens} tokens, {arguments.words} words")
    print("\n| numbers | width | form | ms | memory at most, MiB |\n|---|---|---|---|---|")
    processes = multiprocessing.get_context("spawn")
    for dtype in (torch.bfloat16, torch.float32):
        for width in arguments.widths:
            sizes = arguments.tokens, width, arguments.words
            with processes.Pool(1) as pool:
                medians = pool.apply(times, (sizes, dtype, arguments.threads, arguments.rounds))
            for name, took in medians.items():
                with processes.Pool(1) as pool:
                    peak = pool.apply(peak_memory, (name, sizes, dtype, arguments.threads))
                print(
                    f"| {str(dtype).removeprefix('torch.')} | {width} | {name} | {took:.1f} | {peak:.0f} |", flush=True
                )


if __name__ == "__main__":
    main()
