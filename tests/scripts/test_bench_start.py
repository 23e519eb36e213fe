"""scripts/bench_start.py and scripts/bench_loss.py, in small: tables, and all measured values in the JSON beside."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
FACTS = ["date", "hardware", "peaks of one core", "versions", "threads", "command"]


@pytest.fixture(autouse=True)
def scripts_importable() -> Iterator[None]:
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


def main(name: str, *arguments: str) -> int:
    code: int = importlib.import_module(name).main(arguments)
    return code


def test_a_first_update_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training in place of nmt-train that reports its first update after 0.2 seconds, and would go on for long."""
    script = importlib.import_module("bench_start")
    said = "print('12:00 update 1  epoch 0.01', file=sys.stderr, flush=True)"
    program = f"import sys, time; print('starts', file=sys.stderr); time.sleep(0.2); {said}; time.sleep(60)"
    monkeypatch.setattr(script, "command", lambda name, *arguments: [sys.executable, "-c", program])
    output = tmp_path / "start.md"
    assert script.main(["--work", str(tmp_path), "--rounds", "2", "-o", str(output)]) == 0
    kept = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))
    (taken,) = kept["results"].values()
    assert list(kept["facts"]) == FACTS and len(taken) == 2 and all(0.2 <= one < 30 for one in taken)
    middle = sum(taken) / 2
    assert f"| `nmt-train multi30k_lrn.yaml` | {middle:.2f} | {min(taken):.2f} to {max(taken):.2f} |\n" in (
        output.read_text(encoding="utf-8")
    )


def test_a_command_that_fails_is_reported_with_its_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--work", str(tmp_path), "--config", "multi30k_lrn.yaml", "--data", str(tmp_path / "none")]
    assert main("bench_start", *arguments, "--rounds", "1") == 1
    reported = capsys.readouterr().err
    assert "nmt-train ended without an update: " in reported and "none/val.de nor " in reported


@pytest.mark.slow
def test_the_loss_in_both_forms(tmp_path: Path) -> None:
    output = tmp_path / "loss.md"
    sizes = ["--tokens", "64", "--words", "150", "--widths", "16", "--threads", "1", "--rounds", "2"]
    assert main("bench_loss", *sizes, "-o", str(output)) == 0
    rows = [line.split("|") for line in output.read_text(encoding="utf-8").splitlines() if " | 16 | " in line]
    forms = ["matrix products alone", "plain", "chunked"]
    assert [row[3].strip() for row in rows] == forms * 2 and all(float(row[4]) >= 0 for row in rows)
    kept = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))["results"]
    assert [one["form"] for one in kept] == forms * 2 and all(len(one["ms"]) == 2 for one in kept)
