"""docs/looking_inside.md is true: its command and its examples run, and it names attributes that exist."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import nmt
from tests.conftest import REPOSITORY
from tests.console import call
from tests.tiny_run import make_run

GUIDE = (REPOSITORY / "docs/looking_inside.md").read_text(encoding="utf-8")


def test_its_command_and_its_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    make_run(tmp_path / "runs/multi30k_lrn", sentencepiece=True)
    (tmp_path / "news.en").write_text("a longer sentence\n\nof x\n", encoding="utf-8")
    (command,) = re.findall(r"^```\n(nmt-.*?)\n```$", GUIDE, flags=re.M | re.S)
    assert call(*shlex.split(command)) == 0
    assert re.fullmatch(r"\d+-\d+( \d+-\d+)*\n\n\d+-\d+( \d+-\d+)*\n", (tmp_path / "news.align").read_text())
    names: dict[str, Any] = {}
    capsys.readouterr()
    said = []
    for block in re.findall(r"^```python\n(.*?)^```$", GUIDE, flags=re.M | re.S):
        exec(compile(block, "docs/looking_inside.md", "exec"), names)
        said.append(capsys.readouterr().out)
    names["translator"].close()
    found = names["found"]
    rows = len(found.target_tokens), len(found.units), len(found.source_tokens), 0
    assert [text.count("\n") for text in said] == [rows[0] + 1, *rows[1:]]


def test_it_names_what_only_some_units_have() -> None:
    fields = {field.name for kind in (nmt.Inspection, nmt.UnitTrace) for field in dataclasses.fields(kind)}
    assert fields >= {"tokens", "states", "cell", "gates", "memory", "attention"} <= set(re.findall(r"`(\w+)`", GUIDE))
    assert "`source_attention`" in GUIDE and isinstance(nmt.Inspection.source_attention, property)


def test_its_links_lead_somewhere() -> None:
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)", GUIDE))
    assert [link for link in links if not (REPOSITORY / "docs" / link).exists()] == []
