"""The benchmark of a language model's layers, on layers of a few values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_stack.py"


def test_units_are_compared_with_torch(tmp_path: Path) -> None:
    """A row for each, and all times in the file."""
    output = tmp_path / "found.json"
    sizes = ["--layers", "2", "--width", "4", "--rows", "2", "--steps", "3", "--repeats", "2"]
    command = [sys.executable, str(SCRIPT), *sizes, "--units", "lrn", "lstm", "-o", str(output)]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.split("|")[1].strip() for line in table]
    assert names == ["layers", "---", "torch.nn.LSTM", "lrn", "lstm"]
    found = json.loads(output.read_text())
    assert found["settings"]["width"] == 4 and set(found["seconds"]) == {"torch.nn.LSTM", "lrn", "lstm"}
    assert all(len(times) == 2 and min(times) > 0 for times in found["seconds"].values())
