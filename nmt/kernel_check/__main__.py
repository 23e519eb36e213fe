"""Check the GPU's operations now: `python -m nmt.kernel_check` checks all of them, `... NAME [DEVICE]` only one.

Prints the result of each and exits 1 unless all are right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch

from nmt.errors import ConfigError
from nmt.kernel_check.cases import WITHOUT_TRITON, all_keys
from nmt.kernel_check.checking import find_out
from nmt.ops.dispatch import triton_problem


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="nmt.kernel_check", description="Check operations of nmt on a GPU.")
    parser.add_argument("name", metavar="NAME", nargs="?", help="such as 'sequence lrn'; default: all")
    parser.add_argument("device", metavar="DEVICE", nargs="?", type=torch.device, default="cuda", help="default: cuda")
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("nmt.kernel_check: PyTorch finds no GPU here", file=sys.stderr)
        return 1
    names = [arguments.name] if arguments.name else all_keys()
    if triton_problem() and not arguments.name:
        names = [name for name in names if name in WITHOUT_TRITON]
    try:
        found = find_out(names, arguments.device, again=True)
    except ConfigError as error:
        parser.error(str(error))
    for name, outcome in found.items():
        print(f"{name}: {outcome.why if outcome.state == 'undecided' else outcome.reason or 'right'}")
    return 0 if all(outcome.state == "right" for outcome in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
