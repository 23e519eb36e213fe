"""scripts/profile_cpu.py with a tiny model: kernels by their names, and parts that add up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nmt.cli import train
from nmt.ops import native
from tests.tiny_training import write_config, write_corpus

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "profile_cpu.py"


def profile(*arguments: object) -> None:
    """In a process of its own, because the script renames the kernels of its process."""
    subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], check=True, capture_output=True)


def milliseconds(section: dict[str, Any]) -> dict[str, float]:
    return {row["operation"]: row["ms"] for row in section["rows"]}


@pytest.mark.slow
def test_updates_and_translations_are_divided_into_operations(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config = write_config(tmp_path, training={"max_steps": 2, "validate_every": 2})
    assert train.main([str(config)]) == 0
    output = tmp_path / "profile.md"
    profile("update", config, "--work", tmp_path / "work", "--updates", 2, "--warm-up", 1, "-o", output)
    source = tmp_path / "dev.en"
    options = [
        "--source",
        source,
        "--lines",
        4,
        "--beam",
        2,
        "--precision",
        "fp32",
        "--max-length-offset",
        5,
        "--single",
    ]
    profile("translation", tmp_path / "run", *options, "-o", output)
    record = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))
    translation = "sentence by run, beam 2, max_length_offset 5, fp32, one at a time"
    assert list(record) == ["update of tiny.yaml, fp32", translation]
    for section in record.values():
        *parts, whole, plain = milliseconds(section).values()
        assert whole == pytest.approx(sum(parts)) and min(parts) > 0 and 0 < plain < 10 * whole
        assert any(row["operation"].startswith("kernel ") for row in section["rows"]) == (native.problem() is None)
    text = output.read_text(encoding="utf-8")
    assert text.count("| operation | ms | calls |") == 2 and "## One update of tiny.yaml, fp32\n" in text
