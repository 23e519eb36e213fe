"""What the GPU benchmarks share: timing, the measured ceilings of the device, and rows of results."""

from __future__ import annotations

import datetime
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nmt.ops import dispatch

REPEATS: Final = 30
MOST_SECONDS: Final = 1.0
"""A measurement has fewer repeats, but 5, where these would take longer."""
CACHE_BYTES: Final = 256 * 2**20
"""Written before each repeat, so that nothing is read from the L2 cache that a model would not find there."""


class Row(NamedTuple):
    """One result. `target` is a limit in the unit of the value, from below or, where `most`, from above."""

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


class Bench(NamedTuple):
    """Where and how things are timed."""

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
    """Why nothing can be measured here, None if it can."""
    if not torch.cuda.is_available():
        return "no NVIDIA GPU can be used here"
    return dispatch.triton_problem()


def time_on_gpu(function: Callable[[], object], *, prepare: Callable[[], object] | None = None) -> float:
    """See `Bench.time`: with CUDA events, the cache emptied, after three runs that do not count."""
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


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A Markdown table of rows as JSON has them."""
    lines = ["| what | value | target | met |", "|-|-|-|-|"]
    for row in rows:
        sign = "≤" if row["most"] else "≥"
        target = "" if row["target"] is None else f"{sign} {row['target']:g} {row['unit']}".rstrip()
        met = {True: "yes", False: "no", None: ""}[row["met"]]
        lines.append(f"| {row['what']} | {row['value']:.3g} {row['unit']}".rstrip() + f" | {target} | {met} |")
    return "\n".join(lines)


def report(rows: Sequence[Row], output: Path | None) -> None:
    """Print the table; write the results to `output` as JSON."""
    found = [row.as_json() for row in rows]
    if output is not None:
        output.write_text(json.dumps({**environment(), "rows": found}, indent=1) + "\n", encoding="utf-8")
    print(table(found))


def run_or_say_why_not(program: str, run: Callable[[], Sequence[Row]], output: Path | None) -> int:
    """The exit code: 1, with one line that says why, where there is no GPU to measure."""
    problem = gpu_problem()
    if problem:
        print(f"{program}: {problem}.", file=sys.stderr)
        return 1
    report(run(), output)
    return 0
