"""docs/classification.md is true: its configurations train, and its commands run on what they have made."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nmt.classification import command as classify
from nmt.classification.records import ClassificationOptions
from nmt.config.yaml12 import read_yaml
from scripts.demo_grammar.entailment import generate_pairs
from tests.classification.texts import PARTS, write_pairs
from tests.conftest import REPOSITORY
from tests.tiny_training import nmt_train

GUIDE = (REPOSITORY / "docs/classification.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\| (The .*) \| (The .*) \| (\w+) \|$", GUIDE, re.M)
TOPICS = "topic\ttext\n" + "sports\tthe ball and the team\nscience\ta star and an atom\n" * 20


def test_the_configurations_train_and_the_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pairs", "topics"):
        Path(name).mkdir()
    write_pairs(Path("pairs"))
    for name in PARTS:
        Path(f"topics/{name}.tsv").write_text(TOPICS)
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE, re.S)
    published = yaml.safe_load(blocks.pop())
    assert len(blocks) == 2
    assert ClassificationOptions(**published["task_options"]).layout.texts == [[2, 3]]
    for block in blocks:
        config = read_yaml(block, origin="guide").value
        config["model"] |= {"hidden_size": 8, "embedding_size": 6}
        config["training"] |= {"max_epochs": 1}
        if config["data"]["tokenizer"] == "sentencepiece":
            config["data"]["tokenizer_options"] = {"vocab_size": 290}
        Path("own.yaml").write_text(yaml.safe_dump(config))
        assert nmt_train(Path("own.yaml")) == 0
    assert Path("runs/pairs/test.tsv").is_file() and Path("runs/topics/test.tsv").is_file()
    Path("text.tsv").write_text("".join(f"{first}\t{second}\n" for first, second, _ in EXAMPLES), encoding="utf-8")
    Path("lines.txt").write_text("the ball\n\n")
    commands = re.findall(r"^(nmt-classify .*)$", GUIDE, re.M)
    commands = [line for line in commands if not line.startswith("nmt-classify:")]
    assert len(commands) == 3
    capsys.readouterr()
    printed = [classified(line, capsys) for line in commands]
    example = re.search(r"this\s+model writes\n\n```\n(.*?)```", GUIDE, re.S)
    assert example is not None
    assert [line.split("\t")[0] for line in example[1].splitlines()] == [label for *_, label in EXAMPLES]
    assert [re.sub(r"[\d.]+", "", line).split("\t")[1:] for line in printed[0][0]] == [
        re.sub(r"[\d.]+", "", line).split("\t")[1:] for line in example[1].split("\n")[:-1]
    ]
    assert len(Path("labels.txt").read_text().split("\n")) == len(Path("pairs/test.jsonl").read_text().split("\n"))
    said = [line.split()[1] for line in printed[1][1] if line.startswith("nmt-classify:   ")]
    assert said == ["entailment", "neutral", "contradiction", "correct", "entailment", "neutral", "contradiction"]


def classified(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], list[str]]:
    """What a command writes to standard output and to standard error, as lines."""
    assert classify.main([*shlex.split(line)[1:], "--device", "cpu"]) == 0
    found = capsys.readouterr()
    return found.out.split("\n")[:-1], found.err.split("\n")


def test_the_examples_are_such_pairs() -> None:
    pairs = {(pair.premise, pair.hypothesis, pair.label) for pair in generate_pairs(2200, seed=1)}
    assert len(EXAMPLES) == 3 and set(EXAMPLES) <= pairs


def test_the_script_writes_what_the_page_says(tmp_path: Path) -> None:
    script = REPOSITORY / "scripts/generate_entailment.py"
    command = [sys.executable, str(script), str(tmp_path / "pairs"), "--pairs", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "train.jsonl: 12 pairs" in done.stdout and "test.jsonl: 600 pairs" in done.stdout
    texts = {
        name: {json.loads(line)["sentence2"] for line in (tmp_path / f"pairs/{name}.jsonl").open()} for name in PARTS
    }
    assert not texts["train"] & texts["test"] and not texts["dev"] & texts["test"]
    row = json.loads((tmp_path / "pairs/test.jsonl").open().readline())
    assert list(row) == ["sentence1", "sentence2", "gold_label", "kind"]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1 and "is there already" in again.stderr
