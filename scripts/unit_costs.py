#!/usr/bin/env python3
"""Count parameters and computations of each unit: the table of docs/units.md, computed from the units.

scripts/unit_costs.py
scripts/unit_costs.py --layer-norm [--size 512] [--repeats 30]
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import NamedTuple

import torch

from nmt.registry import CELLS

SHIPPED = ("lrn", "olrn", "atr", "sru", "ssru", "min_gru", "min_lstm", "gru", "lstm", "rnn")


class Costs(NamedTuple):
    """Costs of a unit with inputs and states of `size` values, without layer norm."""

    parameters: int
    at_once: int
    """Multiplications with matrices that need no earlier state: done for all words of a sentence at once."""
    in_turn: int
    """Multiplications with matrices that need the previous state: done for one word after the other."""
    state: int
    """Numbers that are carried from word to word."""


def costs(name: str, size: int) -> Costs:
    """The costs of a unit, counted from its parameters."""
    cell = CELLS.get(name)(size, size)
    matrices = {key: weight.numel() for key, weight in cell.named_parameters() if weight.dim() == 2}
    at_once = matrices.pop("input_weight")
    parameters = sum(weight.numel() for weight in cell.parameters())
    return Costs(parameters, at_once, sum(matrices.values()), cell.state_size)


def of_size(count: int, size: int = 512) -> str:
    """A count of numbers in squares and multiples of H, the size with which they were counted."""
    terms = (count // size**2, "H²"), (count % size**2 // size, "H")
    return " + ".join(f"{times if times > 1 else ''}{what}" for times, what in terms if times)


def table(size: int = 512) -> str:
    """A row for each unit, fewest parameters first."""
    lines = ["| unit | parameters | matrices at once | matrices in turn | state |", "|---|---|---|---|---|"]
    for name in sorted(SHIPPED, key=lambda unit: costs(unit, size).parameters):
        found = costs(name, size)
        once, turn = found.at_once // size**2, found.in_turn // size**2
        lines.append(f"| `{name}` | {of_size(found.parameters)} | {once} | {turn or 'none'} | {of_size(found.state)} |")
    return "\n".join([*lines, ""])


def passes(name: str, size: int, dtype: torch.dtype, repeats: int) -> tuple[float, float]:
    """CPU milliseconds of forward and backward pass over 64 sentences of 24 words, without and with layer norm.

    Medians of passes that take turns, after one that does not count.
    """
    cells = [CELLS.get(name)(size, size, layer_norm=norm) for norm in (False, True)]
    x = torch.randn(64, 24, size, requires_grad=True)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(1 + repeats):
        for cell, found in zip(cells, times, strict=True):
            begin = time.process_time()
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
                output, _ = cell.layer(x)
            output.float().sum().backward()
            found.append(1e3 * (time.process_time() - begin))
    plain, norm = (statistics.median(found[1:]) for found in times)
    return plain, norm


def layer_norm_table(size: int, repeats: int) -> str:
    """What layer norm costs the units that have a product for each word."""
    lines = ["| unit | fp32 | ratio | bf16 | ratio |", "|-|-|-|-|-|"]
    for name in ("atr", "gru", "lstm"):
        cells = [name.upper()]
        for dtype in (torch.float32, torch.bfloat16):
            plain, norm = passes(name, size, dtype, repeats)
            cells += [f"{plain:.1f}, {norm:.1f}", f"{norm / plain:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Count parameters and computations of each unit.")
    parser.add_argument("--size", type=int, default=512, help="width with --layer-norm (default: 512)")
    parser.add_argument("--layer-norm", action="store_true", help="what layer norm costs the C kernels, measured")
    parser.add_argument("--repeats", type=int, default=30, help="passes of each (default: 30)")
    chosen = parser.parse_args()
    print(layer_norm_table(chosen.size, chosen.repeats) if chosen.layer_norm else table(), end="")


if __name__ == "__main__":
    main()
