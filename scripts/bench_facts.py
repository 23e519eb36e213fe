"""What every benchmark reports: date, machine, versions, command; as Markdown, with all measured values beside it."""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench_peer import peer_version

from nmt.system import available_cores, cpu_info

Case = TypeVar("Case")
Measured = TypeVar("Measured")


def facts(script: str, *, threads: int, peer: Sequence[str] | None) -> dict[str, str]:
    """Name -> value; `peer` begins with the Python of the peer's environment."""
    import torch

    from nmt.ops.hardware import bf16_hardware

    bf16 = bf16_hardware(torch.device("cpu")) or "no fast bf16 arithmetic"
    model = f"family {cpu_info('cpu family') or '?'}, model {cpu_info('model') or '?'}"
    found = {
        "date": datetime.date.today().isoformat(),
        "hardware": f"{cpu_name()} ({model}), {available_cores()} cores, {bf16}",
        "peaks of one core": ", ".join(f"{name} {peak:,.0f} GFLOP/s" for name, peak in peaks().items()),
        "versions": f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}",
        "threads": str(threads),
        "command": shlex.join([f"scripts/{script}", *_public(sys.argv[1:])]),
    }
    return found | ({"peer": peer_version(peer[0])} if peer else {})


def peaks() -> dict[str, float]:
    """GFLOP in a second of CPU time of products of a size that suits the cache, by one thread: the best of some."""
    import torch

    from nmt.ops.matrices import PlainMatrix, matrix_of

    rows, width, best, threads = 768, 512, dict[str, float](), torch.get_num_threads()
    torch.set_num_threads(1)
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        weight, x = torch.randn(width, width), torch.randn(rows, width).to(dtype)
        for whose, matrix in (("torch", PlainMatrix(weight.to(dtype))), ("nmt", matrix_of(weight, dtype))):
            seconds, out = [], torch.empty(rows, width, dtype=dtype)
            for _ in range(40):
                start = time.process_time()
                matrix.forward(x, out=out)
                seconds.append(time.process_time() - start)
            best[f"{name} by {whose}"] = 2e-9 * rows * width * width / min(seconds)
    torch.set_num_threads(threads)
    return best


def listed(stated: Mapping[str, str]) -> list[str]:
    """The lines of a Markdown list of facts, in which the command is code."""
    return [f"- {name}: `{value}`" if name == "command" else f"- {name}: {value}" for name, value in stated.items()]


def in_turn(
    cases: Mapping[str, Case], measured: Callable[[Case], Measured], *, rounds: int
) -> dict[str, list[Measured]]:
    """What was measured of each case, by its name, in `rounds` rounds in which the cases take turns."""
    results: dict[str, list[Measured]] = {name: [] for name in cases}
    for number in range(rounds):
        for name, case in cases.items():
            results[name].append(measured(case))
            print(f"{number + 1}/{rounds} {name} {results[name][-1]}", file=sys.stderr, flush=True)
    return results


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `-o`, for `put`."""
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE.md", help="Markdown, and FILE.json next to it; default: print"
    )


def put(output: Path | None, text: str, record: Mapping[str, Any]) -> None:
    """Print the Markdown `text`; or write it to FILE.md, and `record`, from which it was made, to FILE.json."""
    if output is None:
        print(text, end="")
        return
    output.write_text(text, encoding="utf-8")
    output.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def earlier(output: Path | None) -> dict[str, Any]:
    """The record that `put` has written to FILE.json; empty if there is none."""
    file = None if output is None else output.with_suffix(".json")
    return json.loads(file.read_text(encoding="utf-8")) if file is not None and file.is_file() else {}


def cpu_name() -> str:
    """The processor's name from Linux."""
    return cpu_info("model name") or "unknown processor"


def _public(words: Sequence[str]) -> list[str]:
    """The command line without the folders of this machine."""
    return [Path(word).name if Path(word).is_absolute() else word for word in words]
