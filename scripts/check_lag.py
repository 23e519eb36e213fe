"""Compares the lag that nmt computes with that of SimulEval 1.1.4, which gets an environment of its own.

Random delays, and the logs that are named, which `nmt-eval MODEL ... --live POLICY -o FOLDER` writes.

    python scripts/check_lag.py [LOG...] [--cases 5000]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.live.lag import Lag, lag_of

VERSION = "1.1.4"
NEEDED = ("pandas", "pydub", "pyyaml", "requests", "sacrebleu", "soundfile", "textgrid", "tornado", "tqdm")
"""What the module imports; the versions that the package pins are older than this Python."""
CLOSE = 1e-9
PROGRAM = """
import json, sys
from simuleval.evaluator.instance import LogInstance
from simuleval.evaluator.scorers.latency_scorer import LATENCY_SCORERS_DICT
scorers = [LATENCY_SCORERS_DICT[name]() for name in ("AL", "LAAL", "AP", "DAL")]
for line in sys.stdin:
    instance = LogInstance(line)
    print(json.dumps([scorer.compute(instance) for scorer in scorers]))
"""


def main() -> int:
    """Print the largest difference of each measure; 1 if one is above 1e-9."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", metavar="LOG", nargs="*", type=Path)
    parser.add_argument("--cases", type=int, default=5000, help="random cases (default: %(default)s)")
    parser.add_argument("--environment", type=Path, default=Path("build/simuleval"), help="default: %(default)s")
    arguments = parser.parse_args()
    rows = [*random_rows(arguments.cases), *(row for log in arguments.logs for row in logged(log))]
    theirs = measured(rows, python=environment(arguments.environment))
    ours = [
        lag_of(row["delays"], source=row["source_length"], reference=len(row["reference"].split(" "))) for row in rows
    ]
    pairs = [*zip(ours, theirs, strict=True)]
    worst = [max(abs(own[place] - other[place]) for own, other in pairs) for place in range(len(Lag._fields))]
    for name, difference in zip(Lag._fields, worst, strict=True):
        print(f"{name.upper():5}largest difference of {len(rows):,} cases: {difference:.1e}")
    return int(max(worst) > CLOSE)


def environment(folder: Path) -> Path:
    """The Python of an environment with SimulEval."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, "--no-deps", f"simuleval=={VERSION}"], check=True)
        subprocess.run([*install, *NEEDED], check=True)
    return python


def random_rows(count: int) -> Iterator[dict[str, Any]]:
    """Delays that grow, for translations shorter and longer than their references, some of which end early."""
    draw = random.Random(1)
    for index in range(count):
        source, reference, written = draw.randint(1, 30), draw.randint(1, 30), draw.randint(1, 40)
        last = source if draw.random() < 0.8 else draw.randint(1, source)
        delays = sorted(draw.randint(1, last) for _ in range(written))
        yield {"index": index, "delays": delays, "source_length": source, "reference": " ".join("x" * reference)}


def logged(log: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log that have a lag."""
    with log.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if row["delays"] and row["reference"] and row["source_length"]:
                yield row


def measured(rows: Sequence[dict[str, Any]], *, python: Path) -> list[list[float]]:
    """What the package computes of each row."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found = subprocess.run([python, "-c", PROGRAM], input=text, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in found.stdout.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
