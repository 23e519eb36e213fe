#!/usr/bin/env python
"""Waiting times of users: from the start of nmt-train to its first update, and nmt-translate of one sentence.

Prints medians as a Markdown table. The first round fills the caches (encoded text, compiled kernels, files in
memory) and does not count. Each training process is killed as soon as it has reported its first update.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SENTENCE = "A man in a blue shirt is standing on a ladder cleaning a window.\n"


def command(name: str, *arguments: str) -> list[str]:
    """A command of this checkout in a new interpreter."""
    return [sys.executable, "-m", f"nmt.cli.{name}", *arguments]


def first_update(arguments: list[str]) -> float:
    """Seconds until nmt-train has logged update 1."""
    started = time.perf_counter()
    with subprocess.Popen(command("train", *arguments), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if " update 1 " in line:
                taken = time.perf_counter() - started
                process.kill()
                return taken
    raise SystemExit("nmt-train ended without an update:\n" + "".join(said))


def one_sentence(run: str, *options: str) -> float:
    """Seconds that nmt-translate takes for a sentence."""
    started = time.perf_counter()
    subprocess.run(command("translate", run, *options), input=SENTENCE, text=True, capture_output=True, check=True)
    return time.perf_counter() - started


def median(measure: Callable[[], float], rounds: int) -> str:
    """Median and range in seconds, after one round that does not count."""
    taken = [measure() for _ in range(rounds + 1)][1:]
    return f"{statistics.median(taken):.2f} | {min(taken):.2f} to {max(taken):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="multi30k_lrn.yaml")
    parser.add_argument("--data", required=True, help="folder with train.en, train.de and val.en, val.de, or .gz")
    parser.add_argument("--work", type=Path, required=True, help="folder for the run")
    parser.add_argument("--model", help="a trained run to translate with; without it nothing is translated")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    settings = {
        "data.train": f"{arguments.data}/train",
        "data.dev": f"{arguments.data}/val",
        "data.test": "null",
        "training.log_every": "1",
        "run_dir": str(arguments.work / "run"),
    }
    options = ["--config", arguments.config]
    for key, value in settings.items():
        options += ["--set", f"{key}={value}"]
    cases: dict[str, Callable[[], float]] = {f"nmt-train {arguments.config}": lambda: first_update(options)}
    if arguments.model:
        cases["nmt-translate, beam of the model"] = lambda: one_sentence(arguments.model)
        cases["nmt-translate --beam-size 1"] = lambda: one_sentence(arguments.model, "--beam-size", "1")
    print("| command | s | range |\n|---|---|---|")
    for name, measure in cases.items():
        print(f"| {name} | {median(measure, arguments.rounds)} |", flush=True)


if __name__ == "__main__":
    main()
