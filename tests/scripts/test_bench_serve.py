"""scripts/bench_serve.py: its figures from known measurements, and all of it in small."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.exported_run import LINES, make_exported

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module; it imports the files beside it."""
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("bench_serve")
    sys.path.remove(str(SCRIPTS))


def test_rates_latencies_and_cpu_time_are_of_what_was_measured(script: ModuleType) -> None:
    latencies = [0.001 * number for number in range(100, 0, -1)]
    found = {"server, 1 client": script.Measured(100, 4.0, 0.5, latencies), "list": script.Measured(3, 2.0, 1.5, [])}
    text = script.report({"model": found}, {"threads": "2"})
    assert "- threads: 2\n" in text
    assert "| model | server, 1 client | 25.0 | 50.0 | 99.0 | 5.00 |\n" in text
    assert "| model | list | 1.5 | - | - | 500.00 |\n" in text
    kept = found["server, 1 client"].values()
    assert kept["percentiles_ms"] == list(range(1, 101)) and kept["sentences"] == 100
    assert found["list"].values() == {"sentences": 3, "seconds": 2.0, "cpu_seconds": 1.5, "percentiles_ms": []}


@pytest.mark.slow
def test_all_of_it_in_small(tmp_path: Path) -> None:
    model = make_exported(tmp_path).file
    source = tmp_path / "lines"
    source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    command = [str(SCRIPTS / "bench_serve.py"), model, "--source", str(source), "--seconds", "1", "--beam", "2"]
    output = tmp_path / "serving.md"
    subprocess.run([sys.executable, *command, "-o", str(output)], capture_output=True, timeout=300, check=True)
    text = output.read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| run.nmt ")]
    clients = ["server, 1 client", "server, 16 clients", "server, 64 clients"]
    clients += [f"server, 1 client beside the largest text{beam}" for beam in ("", " in the widest beam")]
    assert [row[2].strip() for row in rows] == ["library, one by one", "library, as one list", *clients]
    assert all(float(row[3].replace(",", "")) > 0 for row in rows)
    kept = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))["results"]["run.nmt"]
    assert [f"{one['sentences'] / one['seconds']:,.1f}" for one in kept.values()] == [row[3].strip() for row in rows]
