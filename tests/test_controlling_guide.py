"""docs/controlling.md is true: its commands run, on the files that it shows, and its searches exist."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from nmt.kept_text.lines import count_placeholders
from nmt.registry import SEARCHES
from tests.conftest import page_of
from tests.console import call
from tests.tiny_run import make_run

GUIDE = page_of("docs/controlling.md")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, flags=re.M | re.S)
COMMANDS = [line for kind, text in BLOCKS if not kind for line in text.splitlines() if re.match("nmt-[a-z]+ ", line)]
TEXT = ["The house is small.", "The car is red.", "The sky is blue."]


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCKS if found == kind]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runs").mkdir()
    make_run(tmp_path / "runs/model", sentencepiece=True)
    (tmp_path / "news.en").write_text("".join(f"{line}\n" for line in TEXT))
    (tmp_path / "news.prefix").write_text("Das Haus\n\nDer \n")
    (tmp_path / "letter.en").write_text(*blocks("text"))
    (tmp_path / "terms.tsv").write_text(*blocks("tsv"))
    (tmp_path / "news.jsonl").write_text(*blocks("json"))
    (avoiding,) = re.findall(r"`(\{\"text\".*\})`", GUIDE)
    requests = [{"text": TEXT[0], "prefix": "Das Haus"}, json.loads(avoiding), {"text": TEXT[2]}]
    (tmp_path / "requests.jsonl").write_text("".join(f"{json.dumps(request)}\n" for request in requests))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_commands_for_searches_and_requests_run(folder: Path) -> None:
    commands = [command for command in COMMANDS if "letter.en" not in command]
    assert len(commands) >= 6
    for command in commands:
        assert call(*shlex.split(command), "--max-length-offset", "6") == 0, command
        name = shlex.split(command)[shlex.split(command).index("-o") + 1]
        lines = (folder / name).read_text(encoding="utf-8").split("\n")[:-1]
        n_best = re.search(r"--n-best (\d+)", command)
        assert len(lines) == 3 * (int(n_best[1]) if n_best else 1), command
        if "--prefix" in command:
            assert lines[0].startswith("Das Haus") and f"{lines[2]} ".startswith("Der ")
        if "jsonl" in command:
            assert lines[0].startswith("Das Haus") and not re.search(r"\b[Aa]uto\b", lines[1])
        if "--constraints" in command:
            assert re.search(r"(?<!\w)rotes(?!\w)", lines[1])


def test_its_commands_for_glossaries_and_details_run(folder: Path) -> None:
    commands = [command for command in COMMANDS if "letter.en" in command]
    assert len(commands) == 2
    for command in commands:
        assert call(*shlex.split(command)) == 0
    for line in (folder / "letter.jsonl").read_text().splitlines():
        record = json.loads(line)
        translation = record["translations"][0]
        assert len(translation["attention"]) == len(translation["tokens"]) == len(translation["token_scores"])
        assert {len(row) for row in translation["attention"]} == {len(record["source_tokens"])}
        assert translation["alignment"]
    first, second = (folder / "letter.de").read_text().splitlines()
    assert count_placeholders(first) == {"{name}": 1, "<b>": 1, "</b>": 1}
    assert [first.count(term) for term in ("Suppe", "Wiener Würstchen")] == [1, 1]
    assert count_placeholders(second) == {"http://shop.example.com/{id}": 1}


def test_it_names_searches_that_there_are() -> None:
    rows = re.findall(r"^- `([a-z_]+)`: ", GUIDE.split("### Coverage")[0], flags=re.M)
    assert {"beam", "diverse_beam", "greedy", "mbr", "noisy_beam", "sample"} <= set(rows) <= {*SEARCHES.names()}
