"""scripts/bench_engine_subwords.py: its table, and what it says of files that it cannot use."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.light.subword_models import trained, training_text
from tests.light.subwords_library import compiler

pytestmark = pytest.mark.slow


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    compiler()
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    monkeypatch.setattr(sys, "path", sys.path[:])
    main = importlib.import_module("bench_engine_subwords").main
    model, text, other = tmp_path / "joint.model", tmp_path / "text", tmp_path / "other"
    model.write_bytes(trained(model_type="unigram"))
    text.write_text("".join(f"{line}\n" for line in training_text(50)), encoding="utf-8")
    assert main([str(model), str(text), "--rounds", "2"]) == 0
    said = capsys.readouterr().out
    assert "50 lines, " in said and [line.split(" |")[0] for line in said.splitlines()[-3:]] == [
        "| open the model", "| text to ids", "| ids to text",
    ]  # fmt: skip
    other.write_bytes(b"text")
    for path, problem in ((other, "not a SentencePiece model"), (tmp_path / "none", "No such file")):
        assert main([str(path), str(text)]) == 1
        assert f"{path}: " in (line := capsys.readouterr().err) and problem in line and line.count("\n") == 1
