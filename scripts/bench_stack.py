#!/usr/bin/env python3
"""Time the recurrent layers of a language model, forward and backward, compared with torch.nn.LSTM of the same size.

    scripts/bench_stack.py [--units UNIT ...] [--layers N] [--width N] [--rows N] [--steps N] [-o FILE.json]

Runs on a CPU in fp32. Times are CPU seconds of the process, so that other work on the machine has little effect; units
and torch.nn.LSTM alternate. On a GPU, scripts/bench_ops.py measures the same in bf16.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import Tensor, nn

from nmt.registry import CELLS

UNITS = ("lstm", "gru", "atr", "sru", "lrn", "olrn")
Both = Callable[[], object]


class Stack(nn.Module):
    """Layers of one unit without dropout and layer norm; each layer reads the layer below."""

    def __init__(self, unit: str, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(CELLS.get(unit)(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """x [B, T, H] -> the same shape."""
        for cell in self.layers:
            x = cell.sequence(cell.project(x))[0]
        return x


def both_ways(module: nn.Module, x: Tensor, dtype: torch.dtype) -> Both:
    """A function that runs a module forward and backward over x [B, T, H]; modules of torch return tuples."""
    x = x.detach().requires_grad_()
    leaves = [x, *module.parameters()]

    def run() -> object:
        with torch.autocast(x.device.type, dtype, enabled=dtype != x.dtype):
            found = module(x)
        outputs = found[0] if isinstance(found, tuple) else found
        return torch.autograd.grad(outputs, leaves, torch.ones_like(outputs))

    return run


def measure(functions: dict[str, Both], *, repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each function, alternating, after one call that is not counted."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            start = time.process_time()
            function()
            if repeat:
                found[name].append(time.process_time() - start)
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--units", nargs="+", default=list(UNITS), choices=CELLS.names(), metavar="UNIT")
    for name, value, text in (
        ("layers", 3, "recurrent layers"),
        ("width", 1024, "width of each layer"),
        ("rows", 20, "rows of text in a batch"),
        ("steps", 70, "words of a row"),
        ("repeats", 7, "measurements of each unit"),
        ("threads", 1, "threads"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"{text}; default {value}")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.json", help="all measurements")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    x = torch.randn(arguments.rows, arguments.steps, arguments.width)
    peer = nn.LSTM(arguments.width, arguments.width, arguments.layers, batch_first=True)
    functions = {"torch.nn.LSTM": both_ways(peer, x, x.dtype)}
    for unit in arguments.units:
        functions[unit] = both_ways(Stack(unit, arguments.layers, arguments.width), x, x.dtype)
    times = measure(functions, repeats=arguments.repeats)
    seconds = {name: statistics.median(own) for name, own in times.items()}
    words = arguments.rows * arguments.steps
    print("| layers | time, ms | words a CPU second | speed, times torch.nn.LSTM |\n|---|---|---|---|")
    for name, median in seconds.items():
        ratio = seconds["torch.nn.LSTM"] / median
        print(f"| {name} | {1000 * median:.0f} | {words / median:,.0f} | {ratio:.2f} |")
    if arguments.output is not None:
        settings = {key: value for key, value in vars(arguments).items() if key != "output"}
        versions = {"torch": torch.__version__, "machine": platform.processor() or platform.machine()}
        content = {"date": datetime.date.today().isoformat(), **versions, "settings": settings, "seconds": times}
        arguments.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
