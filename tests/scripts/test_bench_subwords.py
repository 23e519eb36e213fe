"""scripts/bench_subwords.py: its table, on a corpus of some hundred words."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from nmt.ops import native
from tests.conftest import REPOSITORY
from tests.subword_run import write_subword_config

pytestmark = pytest.mark.slow


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    monkeypatch.setattr(sys, "path", sys.path[:])
    main, problem = importlib.import_module("bench_subwords").main, native.problem
    config = write_subword_config(tmp_path)
    assert main([str(config), "--rounds", "2"]) == 0
    said = capsys.readouterr().out
    assert "120 pairs, 1." in said and [line.split(" |")[0] for line in said.splitlines()[-3:]] == [
        "| as encoded", "| anew, compiled", "| anew, Python",
    ]  # fmt: skip
    assert native.problem is problem
    assert main([str(config), "--set", "data.tokenizer_options.bpe_dropout=0.0"]) == 2
    assert "this text is always the same" in capsys.readouterr().err
    assert main([str(config), "--pieces"]) == 0
    rows = capsys.readouterr().out.splitlines()[-2:]
    assert [row.split(" |")[0] for row in rows] == ["| source", "| target"] and rows[0].endswith(" % |")
