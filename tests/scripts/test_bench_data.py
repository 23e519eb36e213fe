"""scripts/generate_corpus.py and scripts/bench_data.py: the text they make, and every part on a few hundred pairs."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="memory is read from Linux's /proc")


@pytest.fixture(scope="module", autouse=True)
def scripts_importable() -> Iterator[None]:
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    """The cells of the table that a part of bench_data prints, without the line below its head."""
    code = module("bench_data").main(arguments)
    captured = capsys.readouterr()
    assert code == 0, captured.err
    rows = [line for line in captured.out.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_a_smaller_corpus_is_the_beginning_of_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    script = module("generate_corpus")
    monkeypatch.setattr(script, "BLOCK", 100)
    monkeypatch.setattr(script, "WORDS", 500)

    def lines(pairs: int, seed: int) -> list[tuple[str, str]]:
        return [pair for sides in script.blocks(pairs, seed=seed) for pair in zip(*sides, strict=True)]

    whole = lines(250, 1)
    assert len(whole) == 250 and whole[:130] == lines(130, 1) and whole != lines(250, 2)
    assert all(side.endswith(" .\n") and len(side.split()) > 1 for pair in whole for side in pair)
    assert len(set(whole)) > 240


@pytest.mark.slow
def test_every_part_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix, work = str(tmp_path / "text"), str(tmp_path / "work")
    command = [sys.executable, str(SCRIPTS / "generate_corpus.py"), prefix, "--pairs", "600"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.count("600 lines") == 2
    head, row = run(capsys, "prepare", prefix, "--work", work, "--updates", "3", "--vocabulary", "400")
    found = dict(zip(head, row, strict=True))
    assert found["process"] == "600 pairs" and float(found["training, MiB"]) > 10
    head, row = run(capsys, "resume", "--work", work, "--updates", "3", "--batches", "4")
    found = dict(zip(head, row, strict=True))
    assert 0 < float(found["start-up, s"]) <= float(found["first update, s"])
    assert float(found["time waited for data"].rstrip("%")) <= 100 and 0 < float(found["padding"].rstrip("%")) < 50
    assert float(found["batches/s made"].replace(",", "")) > 0
    output = tmp_path / "data.json"
    for _ in range(2):
        rows = run(capsys, "encode", prefix, "--work", work, "--pairs", "200", "--repeats", "1", "-o", str(output))
    assert {"SentencePiece alone, threads: 1", "files to encoded corpus, processes: 1"} <= {row[0] for row in rows}
    assert all(float(row[1].replace(",", "")) > 0 for row in rows[1:])
    rows_of_commands = run(capsys, "commands", prefix, "--work", work)
    assert [row[0].split()[0] for row in rows_of_commands] == ["nmt-data,", "prepare", "prepare", "clean", "filter"]
    assert all(float(row[3]) > 10 for row in rows_of_commands[1:])
    first, second = json.loads(output.read_text(encoding="utf-8"))
    assert first["part"] == "encode" and {name: f"{rate:,.0f}" for name, (rate,) in second["results"].items()} == {
        name: middle for name, middle, *_ in rows[1:]
    }


def test_what_cannot_be_measured_ends_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert module("bench_data").main(["resume", "--work", str(tmp_path)]) == 1
    assert "run the part `prepare` first" in capsys.readouterr().err
