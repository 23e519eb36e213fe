"""docs/constrained_translation.md is true: its commands run on the files that it shows, and write what it says."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from nmt.kept_text.lines import count_placeholders
from tests.conftest import REPOSITORY
from tests.console import call
from tests.tiny_run import make_run

GUIDE = (REPOSITORY / "docs/constrained_translation.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^```\n(nmt-.*?)\n```$", GUIDE, flags=re.M | re.S)


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE, flags=re.M | re.S)
    return str(found)


def test_its_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    make_run(tmp_path / "runs/model", sentencepiece=True)
    (tmp_path / "letter.en").write_text(block("text"))
    (tmp_path / "terms.tsv").write_text(block("tsv"))
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 2
    for command in COMMANDS:
        assert call(*shlex.split(command)) == 0
    for line in (tmp_path / "letter.jsonl").read_text().splitlines():
        record = json.loads(line)
        translation = record["translations"][0]
        assert len(translation["attention"]) == len(translation["tokens"]) == len(translation["token_scores"])
        assert {len(row) for row in translation["attention"]} == {len(record["source_tokens"])}
        assert translation["alignment"]
    first, second = (tmp_path / "letter.de").read_text().splitlines()
    assert count_placeholders(first) == {"{name}": 1, "<b>": 1, "</b>": 1}
    assert [first.count(term) for term in ("Suppe", "Wiener Würstchen")] == [1, 1]
    assert count_placeholders(second) == {"http://shop.example.com/{id}": 1}
