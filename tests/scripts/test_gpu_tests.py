"""Tests shared by processes: each runs once, and a failure of one is a failure of all."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_tests.py"

SUITE = """
import pytest

@pytest.mark.parametrize("number", range(10))
def test_number(number, request):
    with open({record!r}, "a") as stream:
        stream.write(f"{{number}} ")
    assert number != 7
"""


def test_every_test_runs_once_in_some_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("gpu_tests", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (tmp_path / "test_suite.py").write_text(SUITE.format(record=str(tmp_path / "record")), encoding="utf-8")
    conftest = SCRIPT.parents[1] / "tests" / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    assert script.main(["-n", "2", "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]) == 1
    assert sorted(map(int, (tmp_path / "record").read_text(encoding="utf-8").split())) == list(range(10))
    out = capsys.readouterr().out
    assert "test_number[7]" in out
    assert out.endswith("1 of 2 processes failed\n")
