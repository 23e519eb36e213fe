"""scripts/bench_memory.py with a program in place of nmt-train: its tables, and all measured values in the JSON."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

STAND_IN = """
import json, os, pathlib, sys, time
settings = dict(word.split("=", 1) for word in sys.argv if "=" in word)
entries = int(os.environ.get("ONEDNN_PRIMITIVE_CACHE_CAPACITY", 0))
run = pathlib.Path(settings["run_dir"])
run.mkdir()
kept = []
with (run / "log.jsonl").open("w") as log:
    print(json.dumps({"event": "start"}), file=log)
    for update in range(1, int(settings["training.max_steps"]) + 1):
        if update % int(settings["training.log_every"]) == 0:
            kept.append(b"x" * (64 << 20) if entries == 1024 else b"")
            values = {"memory_mb": 100.4 + update, "target_tokens_per_second": 1000.4 + update}
            print(json.dumps({"event": "train", "step": update, **values}), file=log)
            print(f"12:00:00 update {update}  epoch 0.01", file=sys.stderr, flush=True)
            time.sleep(0.2 if "LRU_CACHE_CAPACITY" in os.environ else 0)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    program = tmp_path / "train.py"
    program.write_text(STAND_IN, encoding="utf-8")
    module = importlib.import_module("bench_memory")
    monkeypatch.setattr(module, "TRAIN", (sys.executable, str(program)))
    yield module


@pytest.mark.slow
def test_each_part_has_a_table_and_keeps_the_others(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "memory.md"
    arguments = ["--work", str(tmp_path / "work"), "-o", str(output)]
    monkeypatch.setattr(script, "ENTRIES", ((16, 16),))
    assert script.main(["threads", *arguments, "--rounds", "2"]) == 0
    assert script.main(["caches", *arguments]) == 0
    record = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))
    assert sorted(record) == ["caches", "threads"] and record["caches"]["facts"]["threads"] == "1"
    for row in record["threads"]["results"]:
        assert row["alone"] == row["with a busy process"] == [1040.4, 1040.4]
    text = output.read_text(encoding="utf-8")
    assert "## caches\n" in text and "| 1,000 | 1,040, 1,040 | 1,040, 1,040 |\n" in text


TRANSLATES = """
import json, os, sys
beam = json.loads(sys.argv[2])["beam"]
if sys.argv[1] == "missing":
    raise SystemExit("no such model")
spins = int(os.environ["GOMP_SPINCOUNT"])
lines = sys.stdin.read().splitlines()
print(json.dumps({"latencies": [beam / 1000 + spins / 10_000_000] * len(lines)}))
"""


def test_sentences_are_timed_by_search_and_number_of_spins(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "translate.py"
    program.write_text(TRANSLATES, encoding="utf-8")
    monkeypatch.setattr(script, "TRANSLATE", (sys.executable, str(program)))
    with gzip.open(tmp_path / "test_2016_flickr.en.gz", "wt") as stream:
        stream.write("A dog runs.\n" * 3)
    arguments = ["sentences", "--work", str(tmp_path / "work"), "--data", str(tmp_path), "--rounds", "1"]
    assert script.main(arguments) == 2
    assert "sentences: needs --model RUN" in capsys.readouterr().err
    assert script.main([*arguments, "--model", "runs/some"]) == 0
    assert "| 10,000 | 2.0 | 2.0 | 6.0 | 6.0 |\n" in capsys.readouterr().out
    assert script.main([*arguments, "--model", "missing"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("the translation failed: no such model")


@pytest.mark.slow
def test_memory_is_read_when_an_update_is_reported(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in keeps 64 MiB more after each report with large caches, and nothing with small ones."""
    monkeypatch.setattr(script, "ENTRIES", ((1024, 1024), (16, 16)))
    output = tmp_path / "memory.md"
    assert script.main(["caches", "--work", str(tmp_path / "work"), "-o", str(output)]) == 0
    large, small = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))["caches"]["results"]
    assert (large["oneDNN"], large["peak resident MB"]) == (1024, 280.4)
    assert large["anonymous MiB after 120"] > large["anonymous MiB after 20"] + 200
    assert small["anonymous MiB after 120"] < small["anonymous MiB after 20"] + 20


def test_a_training_that_fails_is_reported_with_its_last_line(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "TRAIN", (sys.executable, "-c", "raise SystemExit('no such data')"))
    assert script.main(["caches", "--work", str(tmp_path / "work")]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("nmt-train failed: no such data")
