"""scripts/bench_distributed.py: what its processes measure together, and the table made of it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from nmt.config import load_config
from nmt.data.prepare import prepare
from tests.conftest import REPOSITORY
from tests.distributed.launch import Ranks
from tests.distributed.work import benchmark
from tests.tiny_training import write_config, write_corpus


def test_two_processes_measure_and_the_table_compares_with_the_first_case(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config = write_config(tmp_path, data={"dev": None})
    prepare(load_config(config), tmp_path / "work", progress=False)
    sizes = ["--updates", "2", "--warm-up", "1", "--work", str(tmp_path / "work")]
    command = ["--config", str(config), *sizes, "--measure", str(tmp_path / "result.json")]
    ranks = Ranks(2, benchmark, command, folder=tmp_path / "said")
    assert ranks.wait() == [0, 0], ranks.said(0)
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert all(result[name] > 0 for name in ("target_tokens_per_second", "update_ms", "exchange_ms", "peak_mb"))
    assert result["gradient_mb"] == 4 * 3233 / 1e6

    sys.path.insert(0, str(REPOSITORY / "scripts"))
    report = importlib.import_module("bench_distributed").report
    twice = {**result, "target_tokens_per_second": 2 * result["target_tokens_per_second"]}
    text = report({"one": [result], "two": [twice, twice]}, {"date": "today"})
    assert "| two | " in text and "| 2.00 x |" in text and "- date: today" in text
