"""scripts/bench_latency.py: its figures from known latencies, and all its ways in small."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.tiny_run import make_run

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module; it imports the files beside it."""
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("bench_latency")
    sys.path.remove(str(SCRIPTS))


def test_median_and_percentile_are_over_all_repeats(script: ModuleType) -> None:
    assert [script.percentile([1.0, 2.0, 3.0, 4.0], share) for share in (1, 25, 26, 95, 100)] == [1, 1, 2, 4, 4]
    runs = [
        {"latencies": [0.001, 0.002, 0.009], "lines_per_second": 100.0},
        {"latencies": [0.003, 0.004, 0.005], "lines_per_second": 300.0},
    ]
    text = script.report({"greedy, library": runs, "greedy, started": [{"latencies": [2.0]}]}, {"threads": "2"})
    assert "- threads: 2" in text
    assert "| greedy, library | 3.5 (2.0-4.0) | 9.0 | 6 | 200.0 |" in text
    assert "| greedy, started | 2,000.0 (2,000.0-2,000.0) | 2,000.0 | 1 | - |" in text


@pytest.mark.slow
def test_all_ways_in_small(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (tmp_path / "lines").write_text("a b\nc\nd a\n")
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    command = [sys.executable, str(SCRIPTS / "bench_latency.py"), str(run), "--source", str(tmp_path / "lines")]
    options = ["--beam", "1", "--starts", "1", "--warm", "1", "--repeats", "1", "-o", str(tmp_path / "out.md")]
    subprocess.run([*command, *options], env=clean, check=True)
    record = json.loads((tmp_path / "out.json").read_text())
    assert [*record["results"]] == [
        "greedy, command, its start included",
        "greedy, library, its start included",
        "greedy, command on a pipe",
        "greedy, library",
        "greedy, library, torch imported first",
    ]
    assert all(len(runs[0]["latencies"]) == (1 if "start" in name else 3) for name, runs in record["results"].items())
    assert "| greedy, library | " in (tmp_path / "out.md").read_text()
