"""docs/tagging.md is true: its configurations train, and its commands run on what they have made."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from nmt.config.yaml12 import read_yaml
from nmt.tagging import command as tag
from tests.conftest import REPOSITORY
from tests.tagging.texts import write_columns, write_segmented
from tests.tiny_training import nmt_train

GUIDE = (REPOSITORY / "docs/tagging.md").read_text(encoding="utf-8")


def test_the_configurations_train_and_the_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, write in (("conll2003", write_columns), ("sxu", write_segmented)):
        Path(folder).mkdir()
        write(Path(folder), lines=20)
    for name, called in (("train", "eng.train"), ("dev", "eng.testa"), ("test", "eng.testb")):
        Path(f"conll2003/{name}.conll").rename(f"conll2003/{called}")
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE, re.S)
    assert len(blocks) == 2
    for block in blocks:
        config = read_yaml(block, origin="guide").value
        config["model"] |= {"hidden_size": 8, "embedding_size": 6}
        config["training"] |= {"max_epochs": 1}
        Path("own.yaml").write_text(yaml.safe_dump(config))
        assert nmt_train(Path("own.yaml")) == 0
    assert Path("runs/names/test.conll").is_file() and Path("runs/words/test.txt").is_file()
    for name in ("text.txt", "raw.txt"):
        Path(name).write_text("Anna saw Rome\n\nba\n")
    commands = re.findall(r"^(nmt-tag .*)$", GUIDE, re.M)
    assert len(commands) == 3
    for line in commands:
        assert tag.main([*shlex.split(line)[1:], "--device", "cpu"]) == 0
    assert len(Path("labels.txt").read_text().split("\n")) == 4
