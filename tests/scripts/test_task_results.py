"""scripts/task_results on a run that was really trained."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nmt.interop.run_layout import read_events
from tests.language_models.test_task import write_config, write_text
from tests.tiny_training import nmt_train

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "task_results"


def task_results(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)


def test_a_run_is_a_row_of_its_log(tmp_path: Path) -> None:
    write_text(tmp_path)
    assert nmt_train(write_config(tmp_path)) == 0
    events = {event["event"]: event for event in read_events(tmp_path / "run")}
    head, rule, row = task_results(tmp_path / "run", "--score", "perplexity").stdout.splitlines()
    assert len(head.split("|")) == len(rule.split("|")) == len(row.split("|"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[:2] == ["lrn", f"{events['start']['parameters']:,}"]
    assert cells[-1] == f"{events['test']['perplexity']:.2f}"
    assert "tokens a CPU second" in head and int(cells[4].replace(",", "")) > 0


def test_what_a_log_lacks_is_named(tmp_path: Path) -> None:
    write_text(tmp_path)
    assert nmt_train(write_config(tmp_path, data={"test": None})) == 0
    failed = task_results(tmp_path / "run", "--score", "perplexity")
    assert failed.returncode == 1 and f"{tmp_path / 'run'}: no 'test' in log.jsonl" in failed.stderr
