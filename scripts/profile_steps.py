#!/usr/bin/env python3
"""Profile training steps of models of the published size on a GPU: where their time goes.

    scripts/profile_steps.py [-o FILE.json]

For each unit: the time of a step, and how much of it the host and the GPU are busy; the numbers of launches, waits,
allocations, kernels and copies; and the longest kernels. Needs PyTorch with its profiler, Triton and NumPy.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import torch
from bench_models import Size, training_step
from gpu_timing import Bench, Group, Row, parse, run_groups, time_on_gpu
from torch.autograd import DeviceType

from nmt.ops.dispatch import selected

UNITS: Final = ("lrn", "gru", "atr")
WARM: Final = 4
"""Steps that are not counted: kernels are compiled and graphs recorded in the first two steps of a shape."""
STEPS: Final = 10
"""Steps that are timed; one more is profiled."""
LONGEST: Final = 6
"""Kernels that are listed."""

LAUNCHES: Final = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cudaMemcpy", "cudaMemset")
WAITS: Final = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
ALLOCATIONS: Final = ("cudaMalloc", "cudaHostAlloc")


class Event(NamedTuple):
    """An event of the profiler."""

    name: str
    on_gpu: bool
    start: float
    """in microseconds"""
    end: float


def busy(events: Iterable[Event]) -> float:
    """Microseconds in which at least one of the events is running."""
    total, until = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event.start):
        total += max(0.0, event.end - max(event.start, until))
        until = max(until, event.end)
    return total


def called(events: Iterable[Event], names: tuple[str, ...]) -> int:
    """How often the host has called a function whose name begins with one of `names`."""
    return sum(event.name.startswith(names) for event in events if not event.on_gpu)


def rows(unit: str, events: Sequence[Event], *, wall: float, host: float) -> Iterator[Row]:
    """The profile of one step as rows; `wall` and `host` are microseconds measured without the profiler."""
    gpu = [event for event in events if event.on_gpu]
    copies = [event for event in gpu if event.name.startswith("Memcpy")]
    working = busy(gpu)
    yield Row(f"step of {unit}", wall / 1000, "ms", details={"host ms": host / 1000})
    yield Row(f"step of {unit}, host busy", host / wall, "of it")
    yield Row(f"step of {unit}, GPU busy", working / wall, "of it", details={"ms": working / 1000})
    yield Row(f"step of {unit}, launches by the host", called(events, LAUNCHES), "")
    yield Row(f"step of {unit}, waits for the GPU", called(events, WAITS), "")
    yield Row(f"step of {unit}, allocations", called(events, ALLOCATIONS), "")
    yield Row(f"step of {unit}, kernels", len(gpu) - len(copies), "", details={"copies": len(copies)})
    times = Counter[str]()
    for event in gpu:
        times[event.name] += event.end - event.start
    count = Counter(event.name for event in gpu)
    for name, taken in times.most_common(LONGEST):
        yield Row(f"step of {unit}: {count[name]} x {name[:80]}", taken / 1000, "ms")


def measured(step: Callable[[], object], wait: Callable[[], object]) -> tuple[float, float]:
    """Median microseconds of a step, and median microseconds until the host has launched all of it."""
    walls, hosts = [], []
    for number in range(-WARM, STEPS):
        wait()
        start = time.perf_counter()
        step()
        through = time.perf_counter()
        wait()
        if number >= 0:
            walls.append(1e6 * (time.perf_counter() - start))
            hosts.append(1e6 * (through - start))
    return statistics.median(walls), statistics.median(hosts)


def profiled(step: Callable[[], object], wait: Callable[[], object]) -> list[Event]:
    """The events of one step."""
    with torch.profiler.profile() as profiler:
        step()
        wait()
    events = profiler.events() or []
    return [
        Event(event.name, event.device_type == DeviceType.CUDA, event.time_range.start, event.time_range.end)
        for event in events
    ]


def profile(unit: str, bench: Bench, size: Size) -> Iterator[Row]:
    """Profile one unit."""
    step = training_step(unit, size, bench)
    wait = torch.cuda.synchronize if bench.device.type == "cuda" else lambda: None
    with selected(bench.fast):
        wall, host = measured(step, wait)
        yield from rows(unit, profiled(step, wait), wall=wall, host=host)


def groups(bench: Bench, size: Size) -> dict[str, Group]:
    """All profiles."""
    return {unit: partial(profile, unit, bench, size) for unit in UNITS}


def main(argv: list[str] | None = None) -> int:
    arguments = parse(__doc__, argv)
    bench = Bench(torch.device("cuda"), time_on_gpu)
    return run_groups("profile_steps", groups(bench, Size()), arguments.output, after=arguments.after)


if __name__ == "__main__":
    sys.exit(main())
