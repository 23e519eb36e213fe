"""Check the GPU's operations now: `python -m nmt.kernel_check` all of them, `... NAME [DEVICE]` that one alone.

The first form prints what became of each and exits 1 unless all are right. The second is what the first, and every
command that finds a GPU of a kind it does not know, start for each operation; its exit codes are those of `trials`.
"""

from __future__ import annotations

import argparse
import ctypes
import signal
import sys
from collections.abc import Sequence
from typing import Final

import torch

from nmt.kernel_check import find_out
from nmt.kernel_check.cases import CHECKS, FORMS
from nmt.kernel_check.comparison import DifferenceError
from nmt.kernel_check.trials import DIFFERENT, EQUAL, MOST_SECONDS, UNDECIDED
from nmt.ops.dispatch import TRITON_KERNELS, Selection, triton_problem

_PARENT_DEATH_SIGNAL: Final = 1
"""As prctl(2) numbers it."""
_NOT_ENOUGH: Final = (torch.cuda.OutOfMemoryError, MemoryError)


def try_one(operation: str, device: torch.device) -> int:
    """Check one operation; the exit code, and the reason as the last line of what is printed."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:  # the latter from a PyTorch for CPUs
        print(_first_line(error))
        return UNDECIDED
    # What is exact is not rounded to TF32 here; kernels do not either.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    verified = {operation}
    if operation == "decoding_step" and triton_problem() is None:
        verified |= TRITON_KERNELS.keys()
    for sizes, storage in FORMS:
        try:
            CHECKS[operation](device, sizes, storage, Selection("auto", frozenset(verified)))
            torch.cuda.synchronize(device)
        except _NOT_ENOUGH as error:
            print(_first_line(error))
            return UNDECIDED
        except (DifferenceError, RuntimeError) as error:
            print(f"{str(storage).removeprefix('torch.')}, width {sizes.hidden}: {_first_line(error)}")
            return DIFFERENT
    return EQUAL


def end_with_parent() -> None:
    """Also when that is killed and can end nothing itself; elsewhere than on Linux when the time is over."""
    signal.alarm(MOST_SECONDS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="nmt.kernel_check", description="Check operations of nmt on a GPU.")
    parser.add_argument("operation", metavar="NAME", nargs="?", choices=sorted(CHECKS), help="default: all")
    parser.add_argument("device", metavar="DEVICE", nargs="?", type=torch.device, default="cuda", help="default: cuda")
    arguments = parser.parse_args(argv)
    if arguments.operation:
        end_with_parent()
        return try_one(arguments.operation, arguments.device)
    if not torch.cuda.is_available():
        print("nmt.kernel_check: PyTorch finds no GPU here", file=sys.stderr)
        return 1
    findings, undecided = find_out(torch.device("cuda"), again=True)
    for operation in sorted(findings.known | undecided.keys()):
        reason = findings.refused.get(operation) or undecided.get(operation)
        print(f"{operation}: {reason or 'right'}")
    return 1 if findings.refused or undecided else 0


if __name__ == "__main__":
    sys.exit(main())
