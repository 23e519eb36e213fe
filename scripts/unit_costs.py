#!/usr/bin/env python3
"""Count parameters and computations of each unit: the table of docs/units.md, computed from the units.

scripts/unit_costs.py [--size 512]
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

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


def table(size: int) -> str:
    """A row for each unit, fewest parameters first."""
    squared = size * size
    lines = [
        f"| unit | parameters, {size} wide | matrices at once | matrices in turn | state |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(SHIPPED, key=lambda unit: costs(unit, size).parameters):
        found = costs(name, size)
        vectors = (found.parameters - found.at_once - found.in_turn) // size
        rest = f" + {vectors} H" if vectors else ""
        count = f"{found.parameters:,} = {(found.at_once + found.in_turn) // squared} H²{rest}"
        once, turn = found.at_once // squared, found.in_turn // squared
        lines.append(f"| `{name}` | {count} | {once} | {turn or 'none'} | {found.state // size} H |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Count parameters and computations of each unit.")
    parser.add_argument("--size", type=int, default=512, help="width of inputs and states (default: 512)")
    print(table(parser.parse_args().size), end="")


if __name__ == "__main__":
    main()
