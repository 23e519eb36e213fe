"""docs/exporting.md is true: its commands run, on a model of seconds, and its sizes are those of the shipped models."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.console import call
from tests.tiny_run import make_run

GUIDE = (REPOSITORY / "docs/exporting.md").read_text(encoding="utf-8")


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    make_run(tmp_path / "runs/multi30k_lrn", sentencepiece=True)
    (tmp_path / "news.en").write_text("a b\nlonger c\n")
    for block in re.findall(r"^```\n(.*?)^```$", GUIDE, flags=re.M | re.S):
        for line in block.splitlines():
            assert call(*shlex.split(line)) == 0
    assert (tmp_path / "multi30k_lrn.nmt").is_file()
    assert len((tmp_path / "news.de").read_text(encoding="utf-8").splitlines()) == 2
    for name in re.findall(r"^- `([^`]+)`: ", GUIDE.split("## Number formats")[0], re.M):
        if name != "facts.json":  # of a run that has recorded it
            assert (tmp_path / "multi30k_lrn_int8" / name).exists(), name
    shutil.rmtree(tmp_path / "runs")
    assert call("nmt-check", "multi30k_lrn_int8") == 0


def test_the_sizes_are_those_that_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert runpy.run_path(str(REPOSITORY / "scripts/export_sizes.py"))["main"]() == 0
    for line in capsys.readouterr().out.splitlines():
        assert line in GUIDE.splitlines()
