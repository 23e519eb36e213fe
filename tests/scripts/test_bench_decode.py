"""scripts/bench_decode.py: what it reports beside a peer, with a fake peer and a fake case."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
PEER = """
import sys
if "translate" in sys.argv:
    lines = sys.stdin.read().splitlines()
    print("\\n".join(line + " und mehr" for line in lines[: len(lines) - {missing}]))
    print("Generation took 2.0000[sec].", file=sys.stderr)
else:
    print("JoeyNMT 0, PyTorch 0")
"""


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    """The script as a module; it imports the files beside it."""
    sys.path.insert(0, str(SCRIPTS))
    yield importlib.import_module("bench_decode")
    sys.path.remove(str(SCRIPTS))


def arguments(folder: Path, *, missing: int = 0) -> list[str]:
    (folder / "peer.py").write_text(PEER.format(missing=missing))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {folder / "peer.py"} "$@"\n')
    python.chmod(0o755)
    (folder / "peer.yaml").write_text("testing: {beam_size: 5}\n")
    for name in ("source", "reference"):
        (folder / name).write_text("ein Haus\nein Hund\n")
    files = ["--source", str(folder / "source"), "--reference", str(folder / "reference"), "--work", str(folder)]
    peer = ["--peer", str(python), str(folder / "peer.yaml"), str(folder / "1.ckpt")]
    return [
        str(folder / "run"),
        *files,
        *peer,
        "--beam",
        "1",
        "--precision",
        "fp32",
        "--repeats",
        "1",
        "--threads",
        "1",
    ]


def test_ratio_words_and_repeats(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "_case", lambda *_: {"sentences_per_second": 8.0, "bleu": 40.0, "words": 2.0})
    output = tmp_path / "decode.md"
    for again in ([], ["--append"]):
        assert script.main([*arguments(tmp_path), *again, "-o", str(output)]) == 0
    results = json.loads(output.with_suffix(".json").read_text())["results"]
    assert {name: len(runs) for name, runs in results.items()} == {
        "JoeyNMT, greedy, fp32, 1 thread": 2,
        "run, greedy, fp32, 1 thread": 2,
    }
    assert results["JoeyNMT, greedy, fp32, 1 thread"][0]["sentences_per_second"] == 1.0  # 2 lines in 2 s
    assert results["JoeyNMT, greedy, fp32, 1 thread"][0]["words"] == 4.0
    text = output.read_text()
    assert "8.00 x | 40.00 | 2.0" in text and str(tmp_path) not in text
    assert text.count("- command: ") == 2


@pytest.mark.parametrize(("given", "reaches"), [([], None), (["--max-length-offset", "7"], 7)])
def test_the_limit_of_length_reaches_the_case(
    given: list[str], reaches: int | None, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def case(folder: Path, options: dict[str, Any], threads: int) -> dict[str, float]:
        seen.append(options["max_length_offset"])
        return {"sentences_per_second": 8.0, "bleu": 40.0, "words": 2.0}

    monkeypatch.setattr(script, "_case", case)
    assert script.main([*arguments(tmp_path), *given, "-o", str(tmp_path / "decode.md")]) == 0
    assert set(seen) == {reaches}


def test_a_peer_that_drops_lines_is_an_error(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(arguments(tmp_path, missing=1)) == 1
    assert "JoeyNMT did not translate" in capsys.readouterr().err
