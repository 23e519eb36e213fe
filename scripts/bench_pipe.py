#!/usr/bin/env python
"""Time nmt-translate on a pipe: answers to one line at a time, and a file through a pipe compared with the file itself.

Prints the requests per second of a client that sends a line and waits for its translation; then, in alternating rounds,
the lines per second of `-i FILE` and of `cat FILE |`, from the last line that the command prints, and their ratio.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRANSLATE = [sys.executable, "-m", "nmt.cli.translate"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="run or model directory to translate with")
    parser.add_argument("text", type=Path, help="plain text with a sentence a line")
    parser.add_argument("--requests", type=int, default=200, help="lines sent one at a time (default: 200)")
    parser.add_argument("--lines", type=int, default=1000, help="lines of the text to use (default: 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of file and pipe (default: 3)")
    arguments, options = parser.parse_known_args()
    command = [*TRANSLATE, arguments.model, *options]
    lines = arguments.text.read_bytes().splitlines(keepends=True)[: arguments.lines]
    times = one_at_a_time(command, (lines * arguments.requests)[: arguments.requests])
    print(f"one line at a time: {1 / statistics.mean(times):.1f} a second, median {_ms(times)} ms")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_bytes(b"".join(lines))
        rates = [(from_file(command, path), from_pipe(command, path)) for _ in range(arguments.rounds)]
    for place, name in enumerate(("-i FILE", "cat FILE |")):
        print(f"{name}: {statistics.median(rate[place] for rate in rates):.1f} lines a second")
    print(f"pipe / file: {statistics.median(pipe / file for file, pipe in rates):.2f}")


def one_at_a_time(command: list[str], lines: list[bytes]) -> list[float]:
    """Seconds from each line to its answer, without the first line, which includes the setup."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None and process.stdout is not None
        times = []
        for line in [lines[0], *lines]:
            start = time.perf_counter()
            process.stdin.write(line)
            process.stdin.flush()
            if not process.stdout.readline():
                raise SystemExit("bench_pipe: nmt-translate ended early")
            times.append(time.perf_counter() - start)
        process.stdin.close()
    return times[1:]


def from_file(command: list[str], path: Path) -> float:
    """Lines a second of the text as a file."""
    return _rate(subprocess.run([*command, "-i", str(path)], capture_output=True, check=True).stderr)


def from_pipe(command: list[str], path: Path) -> float:
    """Lines a second of the text through a pipe."""
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as cat:
        return _rate(subprocess.run(command, stdin=cat.stdout, capture_output=True, check=True).stderr)


def _rate(said: bytes) -> float:
    found = re.search(rb"\(([\d.]+) a second\)", said)
    assert found is not None, said
    return float(found[1])


def _ms(times: list[float]) -> str:
    return f"{1000 * statistics.median(times):.1f}"


if __name__ == "__main__":
    main()
