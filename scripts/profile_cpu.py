#!/usr/bin/env python3
"""Profile on the CPU: the time of each kernel and PyTorch operation in an update, or in the translation of a sentence.

    scripts/profile_cpu.py update CONFIG.yaml [--set KEY=VALUE] --work DIR [-o FILE.md]
    scripts/profile_cpu.py translation RUN --source FILE [--beam N] [--max-length-offset N] [--precision P] [--single]
        [-o FILE.md]

A C kernel has its own name; the kernels that one team of threads runs for a loop over time are one row. PyTorch's
operations have the names of its profiler, with their time without the operations inside them. What is left is the time
of Python. With -o, each title is a section of its own, and earlier sections stay. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_facts import add_output, earlier, facts, listed, put
from bench_train_case import prepared

from nmt.cli.arguments import natural, positive, whole_of
from nmt.cli.common import execute, make_parser
from nmt.light.options import OPTIONS
from nmt.system import keep_more_kernels

ROWS = 14
"""Operations with a row of their own."""
TEAM = "loops over time, in one team of threads"
OTHERS, PYTHON, ALL = "other PyTorch operations", "Python between them", "all"
HEAD = struct.Struct("=QQ")
"""The first two slots of a packed call: who calls, and the kernel (nmt/ops/native/call.h)."""

Step = Callable[[], object]
Rows = list[dict[str, Any]]


def build_parser() -> argparse.ArgumentParser:
    """The two parts and their options."""
    parser = make_parser("scripts/profile_cpu.py", "Profile an update or a translation on the CPU.")
    parts = parser.add_subparsers(dest="part", required=True, metavar="PART")
    update = parts.add_parser("update", help="updates of a training")
    update.add_argument("config", metavar="CONFIG.yaml", help="as for nmt-train")
    update.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    update.add_argument("--work", required=True, metavar="DIR", help="for tokenizer and encoded text")
    update.add_argument("--updates", type=positive, default=40, metavar="N", help="profiled updates, default 40")
    update.add_argument("--warm-up", type=positive, default=20, metavar="N", help="updates before those, default 20")
    translation = parts.add_parser("translation", help="translation of some lines")
    translation.add_argument("run", metavar="RUN", help="as for nmt-translate")
    translation.add_argument("--source", required=True, metavar="FILE")
    translation.add_argument("--lines", type=positive, default=200, metavar="N", help="default 200")
    translation.add_argument("--beam", type=whole_of(OPTIONS["beam_size"]), default=5, metavar="N", help="default 5")
    translation.add_argument("--max-length-offset", type=natural, metavar="N", help="default: as in RUN")
    translation.add_argument("--precision", choices=("fp32", "bf16", "int8"), default="int8", help="default int8")
    translation.add_argument("--single", action="store_true", help="one line at a time, not in batches")
    for part in (update, translation):
        add_output(part)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Profile one part; other sections of FILE.json stay."""
    keep_more_kernels()
    import torch

    name_kernels()
    title, count, step = {"update": updates, "translation": translations}[arguments.part](arguments)
    start = time.perf_counter()
    step()
    rows = profiled(step, count, plain=time.perf_counter() - start)
    stated = facts("profile_cpu.py", threads=torch.get_num_threads(), peer=None)
    record = earlier(arguments.output) | {title: {"facts": stated, "rows": rows}}
    put(arguments.output, "\n".join(line for name, found in record.items() for line in report(name, found)), record)
    return 0


def updates(arguments: argparse.Namespace) -> tuple[str, int, Step]:
    """A title, a number of updates, and what does them, after those that warm up."""
    updater, groups = prepared(arguments.config, arguments.work, arguments.overrides)
    number = 0

    def step(count: int) -> None:
        nonlocal number
        for _ in range(count):
            number += 1
            updater.update(next(groups), step=number)

    step(arguments.warm_up)
    name = f"update of {Path(arguments.config).name}, {updater.precision.name}"
    return name, arguments.updates, partial(step, arguments.updates)


def translations(arguments: argparse.Namespace) -> tuple[str, int, Step]:
    """A title, the number of lines, and what translates them, after they were translated once to warm up."""
    from nmt.data.text import read_lines
    from nmt.interop.model_dir import load_model
    from nmt.search.translator import Translator

    lines = list(read_lines(arguments.source))[: arguments.lines]
    loaded = load_model(arguments.run)
    decoding = loaded.config.decoding
    offset = decoding.max_length_offset if arguments.max_length_offset is None else arguments.max_length_offset
    decoding = dataclasses.replace(
        decoding, beam_size=arguments.beam, n_best=1, max_length_offset=offset, precision=arguments.precision
    )
    translator = Translator(loaded.model, loaded.tokenizer, decoding, scores=False)
    parts = [[line] for line in lines] if arguments.single else [lines]

    def step() -> None:
        for part in parts:
            list(translator.translate(part))

    step()
    search = "greedy" if arguments.beam == 1 else f"beam {arguments.beam}"
    how = "one at a time" if arguments.single else "in batches"
    title = (
        f"sentence by {Path(arguments.run).name}, {search}, max_length_offset {offset}, {arguments.precision}, {how}"
    )
    return title, len(lines), step


def name_kernels() -> None:
    """Make the C kernels events of PyTorch's profiler, under the names of their sources."""
    from torch.profiler import record_function

    from nmt.ops import native

    if native.problem() is not None:
        return
    library = native._library()
    names = {
        ctypes.cast(function, ctypes.c_void_p).value: name
        for name in library.signatures
        for version in native.TYPES.values()
        if (function := getattr(library.code, f"{name}_{version}", None)) is not None
    }
    plain = library.runner

    def runner() -> Callable[[bytes, int, int], None]:
        function = plain()

        def named(packed: bytes, count: int, threads: int) -> None:
            called = TEAM if count > 1 else names.get(HEAD.unpack_from(packed)[1], "of another library")
            with record_function(f"kernel {called}"):
                function(packed, count, threads)

        return named

    library.runner = runner  # type: ignore[method-assign]
    native.kernel.cache_clear()


def profiled(step: Step, count: int, *, plain: float) -> Rows:
    """Rows of a profile, most time first, each divided by `count`; `plain`: seconds without the profiler."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        start = time.perf_counter()
        step()
        whole = 1000 * (time.perf_counter() - start)  # before the profiler sorts its events
    found = [(event.key, event.self_cpu_time_total / 1000, event.count) for event in profiler.key_averages()]
    found.sort(key=lambda one: -one[1])
    others = found[ROWS:]
    rows: list[tuple[str, float, int | None]] = [
        *found[:ROWS],
        (OTHERS, sum(one[1] for one in others), sum(one[2] for one in others)),
        (PYTHON, whole - sum(one[1] for one in found), None),
        (ALL, whole, None),
        (f"{ALL}, without the profiler", 1000 * plain, None),
    ]
    return [
        {"operation": name, "ms": milliseconds / count, "calls": None if calls is None else calls / count}
        for name, milliseconds, calls in rows
    ]


def report(title: str, found: Mapping[str, Any]) -> list[str]:
    """A section: facts and table."""
    lines = [f"## One {title}", "", *listed(found["facts"]), "", "| operation | ms | calls |", "|-|-:|-:|"]
    for one in found["rows"]:
        calls = "" if one["calls"] is None else f"{one['calls']:,.1f}"
        lines.append(f"| {one['operation']} | {one['ms']:,.3f} | {calls} |")
    return [*lines, ""]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
