"""scripts/torture: its parts at their smallest, and that it sees a loss where there is one."""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from nmt.errors import DataError
from nmt.search.translator import Translator
from tests.tiny_training import nmt_train, write_config, write_corpus

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def inputs() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("torture_input")
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def runs() -> Iterator[ModuleType]:
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("torture_runs")
    sys.path.remove(str(SCRIPTS))


def test_fuzzing_counts_what_it_tried(inputs: ModuleType, tmp_path: Path) -> None:
    found = inputs.fuzz(tmp_path, minutes=0.02, seed=1)
    assert found["configurations"] >= found["hostile model files"] > 0
    assert found["bytes fuzzed"] > 100 * found["hostile model files"]
    assert "guilty" not in {path.name for path in tmp_path.iterdir()}


def test_a_lost_line_is_seen_and_the_text_is_kept(
    inputs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translator, "translate", lambda _, lines: iter(list(lines)[1:]))
    with pytest.raises(DataError, match=r"guilty: AssertionError: \d+ lines, \d+ translations"):
        inputs.fuzz(tmp_path, minutes=0.5, seed=1)
    assert (tmp_path / "guilty").is_file()


@pytest.mark.slow
def test_odd_lines_both_ways(inputs: ModuleType, tmp_path: Path) -> None:
    found = inputs.lines(tmp_path, count=30, seed=1)
    assert found["lines translated twice with a beam"] == found["lines translated twice with greedy search"] == 30


@pytest.mark.slow
def test_a_server_among_clients_of_all_kinds(inputs: ModuleType, tmp_path: Path) -> None:
    found = importlib.import_module("torture_server").server(tmp_path, requests=300, seed=1)
    assert found["answers, all of them right"] > 100 and found["requests: half-closed"] > 0


def test_runs_that_differ_are_told_apart(runs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path)
    config = write_config(tmp_path)
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    for run, seed in ((one, 1), (same, 1), (other, 2)):
        assert nmt_train(config, "--set", f"run_dir={run}", "--set", f"seed={seed}") == 0
    monkeypatch.setattr(runs, "STEPS", 12)
    runs.compare(one, same)
    with pytest.raises(DataError, match="other: the weights differ"):
        runs.compare(one, other)
    log = same / "log.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-3]))
    with pytest.raises(DataError, match="same: the log differs"):
        runs.compare(one, same)


def test_the_report_keeps_the_sections_of_others(runs: ModuleType) -> None:
    loader = importlib.machinery.SourceFileLoader("torture", str(SCRIPTS / "torture"))
    torture = ModuleType("torture")
    torture.__file__ = loader.path
    loader.exec_module(torture)
    first = torture.report({"lines": {"lines translated twice": 1_000_000}})
    assert "lines translated twice: 1,000,000" in first
    both = torture.report({"kills": {"kills survived": 7}}, before=f"{first}\n## Mutants\n\n9 of 9\n\n### Why\n\n1\n")
    titles = [line for line in both.splitlines() if line.startswith("#")]
    assert titles == [
        "# Reliability", f"## {torture.TITLES['kills']}", f"## {torture.TITLES['lines']}", "## Mutants", "### Why"
    ]  # fmt: skip
    again = torture.report({"kills": {"kills survived": 8}}, before=both)
    assert again == both.replace("survived: 7", "survived: 8"), "nothing else changes, nor does space add up"


@pytest.mark.slow
def test_moments_in_which_files_cannot_be_read(runs: ModuleType, tmp_path: Path) -> None:
    found = importlib.import_module("torture_unreadable").unreadable(tmp_path, count=6, seed=1)
    assert found["unreadable moments"] == 6
    assert found["runs compared bit by bit"] == found["damages"] + 1 >= 2


@pytest.mark.slow
def test_a_killed_preparation_ends_as_the_undisturbed_one(runs: ModuleType, tmp_path: Path) -> None:
    found = importlib.import_module("torture_data").data_kills(tmp_path, count=2, seed=1)
    assert found["kills survived"] == 2 and found["corpora prepared"] >= 1


@pytest.mark.slow
def test_a_killed_run_ends_as_the_undisturbed_one(runs: ModuleType, tmp_path: Path) -> None:
    found = runs.kills(tmp_path, count=2, seed=3)
    assert found["kills survived"] == 2
    assert found["runs compared bit by bit"] >= 1
