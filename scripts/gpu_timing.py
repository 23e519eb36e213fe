"""Common parts of the GPU benchmarks: timing, the measured ceilings of the device, and rows of results."""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import statistics
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nmt.ops import dispatch

REPEATS: Final = 30
MOST_SECONDS: Final = 1.0
"""A measurement has fewer repeats, at least 5, if they would take longer."""
CACHE_BYTES: Final = 256 * 2**20
"""Written before each repeat to empty the L2 cache, in which a model would not find its inputs either."""


class Row(NamedTuple):
    """One result. `target` is a limit in the unit of the value: the least value or, with `most`, the greatest."""

    what: str
    value: float
    unit: str
    target: float | None = None
    most: bool = False
    details: dict[str, Any] = {}

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.most else self.value >= self.target

    def as_json(self) -> dict[str, Any]:
        """The row with `met`."""
        return {**self._asdict(), "met": self.met}


Group = Callable[[], Iterable[Row]]
"""Measures a few rows that share their preparations."""


class Bench(NamedTuple):
    """The device and the method of timing."""

    device: torch.device
    time: Callable[..., float]
    """Median microseconds of a function; `prepare` runs before each repeat and is not counted."""
    fast: str = "triton"
    """The choice of kernels that is measured"""
    plain: str = "reference"
    """and the one it is compared with."""

    def randn(self, *shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = False) -> torch.Tensor:
        """Random values on the device."""
        return torch.randn(shape, device=self.device).to(dtype).requires_grad_(grad)


def gpu_problem() -> str | None:
    """Why nothing can be measured here; None if measuring is possible."""
    if not torch.cuda.is_available():
        return "no NVIDIA GPU can be used here"
    return dispatch.triton_problem()


def time_on_gpu(function: Callable[[], object], *, prepare: Callable[[], object] | None = None) -> float:
    """`Bench.time` with CUDA events and an empty cache, after three runs that are not counted."""
    cache = torch.empty(CACHE_BYTES, dtype=torch.uint8, device="cuda")
    times: list[float] = []
    for repeat in range(-3, REPEATS):
        if prepare is not None:
            prepare()
        cache.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        end.record()
        end.synchronize()
        if repeat >= 0:
            times.append(1000 * start.elapsed_time(end))
        if len(times) >= 5 and sum(times) > 1e6 * MOST_SECONDS:
            break
    return statistics.median(times)


def replayed(function: Callable[[], object], bench: Bench) -> Callable[[], object]:
    """The function as a CUDA graph, so that the GPU waits for no launch by the host; itself without a GPU.

    It must always read and write the same memory.
    """
    if bench.device.type != "cuda":
        return function
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # compiles kernels, and lets libraries allocate their memory
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = function()  # keeps the memory that the graph writes
    return lambda: (graph.replay(), kept)


def copy_bandwidth(bench: Bench, *, size: int = 2**30) -> float:
    """Bytes read and written in a second by a copy of `size` bytes."""
    source = torch.empty(size, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    return 2 * size / (bench.time(lambda: target.copy_(source)) * 1e-6)


def environment() -> dict[str, Any]:
    """Date, device and versions."""
    return {
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "torch": torch.__version__,
        "triton": dispatch.triton_version(),
        "cuda": torch.version.cuda,
    }


HEAD: Final = "| what | value | target | met |\n|-|-|-|-|"


def line(row: dict[str, Any]) -> str:
    """The line of a Markdown table for a row in its JSON form."""
    sign = "≤" if row["most"] else "≥"
    target = "" if row["target"] is None else f"{sign} {row['target']:g} {row['unit']}".rstrip()
    met = {True: "yes", False: "no", None: ""}[row["met"]]
    return f"| {row['what']} | {row['value']:.3g} {row['unit']}".rstrip() + f" | {target} | {met} |"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of rows in their JSON form."""
    return "\n".join([HEAD, *map(line, rows)])


def write(output: Path | None, rows: Sequence[dict[str, Any]], failed: dict[str, str]) -> None:
    """Write the results so far, completely or not at all: the process may be killed at any time."""
    if output is None:
        return
    temporary = output.with_name(f".{output.name}")
    content = {**environment(), "rows": rows, "failed": failed}
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    temporary.replace(output)


def run_groups(program: str, groups: Mapping[str, Group], output: Path | None, *, after: str | None = None) -> int:
    """Measure all groups, print each result immediately and write it to `output`; return the exit code.

    If a group fails, this is reported with the reason, and the others still run: in a new process if the failure has
    made the GPU unusable for this one. `after`: continue after this group, with the results in `output`.
    """
    problem = gpu_problem()
    if problem:
        print(f"{program}: {problem}.", file=sys.stderr)
        return 1
    rows, failed = _earlier(output) if after else ([], {})
    if not after:
        print(HEAD, flush=True)
    names = list(groups)
    for name in names[names.index(after) + 1 if after else 0 :]:
        try:
            for row in groups[name]():
                rows.append(row.as_json())
                print(line(rows[-1]), flush=True)
                write(output, rows, failed)
        except Exception as error:
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0][:200]}"
            write(output, rows, failed)
            if output is not None and not gpu_works():
                return subprocess.call([sys.executable, sys.argv[0], "-o", str(output), "--after", name])
        gc.collect()
        torch.cuda.empty_cache()
    write(output, rows, failed)
    for name, reason in failed.items():
        print(f"{program}: {name}: {reason}", file=sys.stderr)
    return 1 if failed else 0


def gpu_works() -> bool:
    """Whether this process can still use the GPU: after an illegal access only a new process can."""
    try:
        torch.cuda.synchronize()
        return True
    except RuntimeError:
        return False


def _earlier(output: Path | None) -> tuple[list[dict[str, Any]], dict[str, str]]:
    if output is None:
        return [], {}
    found = json.loads(output.read_text(encoding="utf-8"))
    return found["rows"], found["failed"]


def parse(description: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of a GPU benchmark."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="write each result there at once, as JSON")
    parser.add_argument("--after", metavar="GROUP", help="continue after this group, with the results in --output")
    return parser.parse_args(argv)
