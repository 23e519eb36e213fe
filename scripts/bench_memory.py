#!/usr/bin/env python3
"""Measure what the caches of oneDNN cost a training process on the CPU, and how its threads should wait.

    scripts/bench_memory.py {caches,threads,sentences} ... --work DIR [--data DIR] [--model RUN] [-o FILE.md]

caches: memory after 20, 120 and 160 updates, and target tokens a second, by the number of compiled products that
oneDNN and ideep keep.
threads: target tokens a second by GOMP_SPINCOUNT, alone and with a process that keeps a core busy.
sentences: milliseconds to translate one sentence, in the same cases, by the model RUN.
All but the memory needs a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_data_watch import anonymous_memory, train_events
from bench_environment import ENVIRONMENT  # without the variables that nmt.cli sets
from bench_facts import add_output, earlier, facts, listed, put

from nmt.cli.arguments import positive
from nmt.cli.common import execute, make_parser
from nmt.data import read_lines
from nmt.errors import ConfigError, DataError
from nmt.system import available_cores

ENTRIES = ((1024, 1024), (64, 1024), (64, 64), (16, 16))
"""Cached products of oneDNN and of ideep; the first pair is their default."""
CHECKED = (20, 120, 160)
"""Updates after which memory is read."""
SPINS = (0, 1000, 3000)
SENTENCE_SPINS = (0, 1000, 10_000)
SENTENCES = 200
BUSY = "while True: pass"
BUSY_PROCESSES = {"alone": 0, "with a busy process": 1}
TRAIN = (sys.executable, "-m", "nmt.cli.train")
TRANSLATE = (sys.executable, str(Path(__file__).with_name("bench_latency_case.py")))

Row = dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """All options."""
    parser = make_parser("scripts/bench_memory.py", "Measure the memory and the threads of a training on the CPU.")
    parser.add_argument("parts", nargs="+", choices=sorted(PARTS), metavar="PART", help=", ".join(sorted(PARTS)))
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="for the runs, which are deleted")
    parser.add_argument("--data", metavar="DIR", default="data/multi30k", help="default: data/multi30k")
    parser.add_argument("--model", metavar="RUN", help="what translates, for the part sentences")
    parser.add_argument("--precision", choices=("bf16", "fp32"), default="bf16", help="of the training; default: bf16")
    parser.add_argument("--rounds", type=positive, default=2, metavar="N", help="of each timed case (default: 2)")
    add_output(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Measure the parts that are asked for; other parts in FILE.json stay there."""
    if "sentences" in arguments.parts and arguments.model is None:
        raise ConfigError("sentences: needs --model RUN")
    arguments.work.mkdir(parents=True, exist_ok=True)
    record = earlier(arguments.output)
    for part in dict.fromkeys(arguments.parts):
        stated = facts("bench_memory.py", threads=1 if part == "caches" else available_cores(), peer=None)
        record[part] = {"facts": stated, "results": PARTS[part](arguments)}
    put(arguments.output, "\n".join(line for part, found in record.items() for line in report(part, found)), record)
    return 0


def caches(arguments: argparse.Namespace) -> list[Row]:
    """A row for each pair of cache sizes; the speed is the median of the log lines after the first."""
    rows = []
    for onednn, ideep in ENTRIES:
        # with updates after the last reading, so that no validation begins before it
        events, memory = train(arguments, CHECKED[-1] + 20, cache_environment(onednn, ideep))
        row: Row = {"oneDNN": onednn, "ideep": ideep}
        row |= {f"anonymous MiB after {update}": memory[update] for update in CHECKED}
        rates = [event["target_tokens_per_second"] for event in events if event["step"] > CHECKED[0]]
        row |= {"peak resident MB": events[-1]["memory_mb"], "target tokens/s": statistics.median(rates)}
        rows.append(row)
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def threads(arguments: argparse.Namespace) -> list[Row]:
    """A row for each number of spins; each round measures every case once."""

    def rate(environment: Mapping[str, str]) -> float:
        events, _ = train(arguments, 40, environment)
        return float(events[-1]["target_tokens_per_second"])

    return by_spins(arguments, SPINS, {"": rate})


def sentences(arguments: argparse.Namespace) -> list[Row]:
    """A row for each number of spins: the median time of a sentence in ms, greedy and with a beam of 5."""
    lines = list(islice(read_lines(f"{arguments.data}/test_2016_flickr.en.gz"), SENTENCES))

    def milliseconds(beam: int) -> Callable[[Mapping[str, str]], float]:
        options = json.dumps({"beam": beam, "warm": 20, "torch_first": False})

        def measure(environment: Mapping[str, str]) -> float:
            done = subprocess.run(
                [*TRANSLATE, arguments.model, options],
                input="".join(f"{line}\n" for line in lines),
                capture_output=True,
                text=True,
                env={**ENVIRONMENT, **environment},
                check=False,
            )
            if done.returncode:
                raise DataError(f"the translation failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
            return 1000 * statistics.median(json.loads(done.stdout.splitlines()[-1])["latencies"])

        return measure

    return by_spins(arguments, SENTENCE_SPINS, {"greedy ": milliseconds(1), "beam 5 ": milliseconds(5)})


def by_spins(
    arguments: argparse.Namespace, spins: Sequence[int], measures: Mapping[str, Callable[[Mapping[str, str]], float]]
) -> list[Row]:
    """Measure alone and with a busy process, once in each round; `measures`: by what stands before the case."""
    names = [name + case for name in measures for case in BUSY_PROCESSES]
    rows: list[Row] = [{"spins": number} | {name: [] for name in names} for number in spins]
    for _ in range(arguments.rounds):
        for row in rows:
            environment = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": str(row["spins"])}
            for name, measure in measures.items():
                for case, busy in BUSY_PROCESSES.items():
                    with busy_processes(busy):
                        row[name + case].append(measure(environment))
            print(row, file=sys.stderr, flush=True)
    return rows


PARTS: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "caches": caches,
    "threads": threads,
    "sentences": sentences,
}


def cache_environment(onednn: int, ideep: int) -> dict[str, str]:
    """One thread, and caches of these sizes."""
    return {
        "OMP_NUM_THREADS": "1",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(onednn),
        "LRU_CACHE_CAPACITY": str(ideep),
    }


def train(
    arguments: argparse.Namespace, updates: int, environment: Mapping[str, str]
) -> tuple[list[Row], dict[int, float]]:
    """Train without a validation before the end.

    Returns the events of updates, and the anonymous memory in MiB at the moment each of them was reported. Raises
    DataError with the last line of nmt-train if it fails.
    """
    folder = arguments.work / "run"
    shutil.rmtree(folder, ignore_errors=True)
    chosen = {
        "data.train": f"{arguments.data}/train",
        "data.dev": f"{arguments.data}/val",
        "data.test": "null",
        "data.cache_dir": str(arguments.work / "cache"),
        "decoding.beam_size": 1,
        "training.batch_tokens": 2000,
        "training.precision": arguments.precision,
        "training.max_steps": updates,
        "training.validate_every": 10 * updates,
        "training.log_every": 20,
        "run_dir": str(folder),
    }
    words = [*TRAIN, "multi30k_lrn.yaml", "--device", "cpu"]
    words += [word for key, value in chosen.items() for word in ("--set", f"{key}={value}")]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **environment})
    memory, said = {}, ""
    with process:
        assert process.stderr is not None
        try:
            for said in process.stderr:
                if reported := re.search(r" update (\d+) ", said):
                    memory[int(reported[1])] = anonymous_memory(process.pid)
        except BaseException:  # Ctrl-C and SIGTERM: leaving this block would wait for the training
            process.kill()
            raise
    if process.returncode:
        raise DataError(f"nmt-train failed: {said.strip()}")
    return train_events(folder / "log.jsonl"), memory


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Keep so many cores busy."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def report(part: str, found: Mapping[str, Any]) -> list[str]:
    """Heading, facts and table of a part."""
    rows: Sequence[Row] = found["results"]
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "-|" * len(rows[0])]
    lines += ["| " + " | ".join(map(shown, row.values())) + " |" for row in rows]
    return [f"## {part}", "", *listed(found["facts"]), "", *lines, ""]


def shown(value: Any) -> str:
    """A cell of a table; the values of all rounds side by side."""
    if isinstance(value, list):
        return ", ".join(map(shown, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return f"{value:,}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the script and return its exit code."""
    return execute(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
