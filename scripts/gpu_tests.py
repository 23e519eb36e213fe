"""Tests shared by several processes: on a GPU most of their time goes into compiling kernels, one after the other.

    scripts/gpu_tests.py [-n PROCESSES] [arguments of pytest ...]

Prints what the processes say that fail, and the last line of each. Exits 1 if one fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
NO_TESTS: Final = 5
"""How pytest exits where it finds none, as in a share of few tests."""


def run(arguments: Sequence[str], *, processes: int) -> list[tuple[int, str]]:
    """Exit code and output of each process; see `--share` in tests/conftest.py."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, str(index)) for index in range(processes)]
        running = []
        for index, log in enumerate(logs):
            with log.open("w", encoding="utf-8") as stream:
                running.append(subprocess.Popen(
                    [*command, "--share", f"{index}/{processes}"], cwd=REPOSITORY, stdout=stream,
                    stderr=subprocess.STDOUT, env=environment,
                ))  # fmt: skip
        codes = [process.wait() for process in running]
        return [
            (code, log.read_text(encoding="utf-8", errors="replace")) for code, log in zip(codes, logs, strict=True)
        ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--processes", type=int, default=min(16, os.cpu_count() or 1))
    options, rest = parser.parse_known_args(argv)
    if options.processes < 1:
        parser.error("--processes must be at least 1")
    done = run(rest, processes=options.processes)
    failed = [text for code, text in done if code not in (0, NO_TESTS)]
    print("\n".join(failed))
    for index, (_, text) in enumerate(done):
        print(f"{index}: {(text.strip().splitlines() or [''])[-1]}")
    print(f"{len(failed)} of {len(done)} processes failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
