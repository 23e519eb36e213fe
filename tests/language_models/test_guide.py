"""docs/language_models.md is true: its configuration trains, and its commands run on what it has made."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from nmt.config.yaml12 import read_yaml
from nmt.language_models import command as sample
from nmt.scoring import command as score
from tests.conftest import REPOSITORY
from tests.language_models.test_task import write_text
from tests.test_fusion_guide import SECTION
from tests.tiny_training import nmt_train

GUIDE = (REPOSITORY / "docs/language_models.md").read_text(encoding="utf-8").split(SECTION)[0]
COMMANDS = {"nmt-score": score, "nmt-sample": sample}


def test_the_configuration_trains_and_the_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.S)
    config = read_yaml(block, origin="guide").value
    (tmp_path / "ptb").mkdir()
    write_text(tmp_path / "ptb")
    for name, called in (("train", "train"), ("dev", "valid"), ("test", "test")):
        (tmp_path / "ptb" / f"{name}.txt").rename(tmp_path / "ptb" / f"ptb.{called}.txt")
    monkeypatch.chdir(tmp_path)
    config["model"] |= {"hidden_size": 8, "embedding_size": 6}
    config["training"] |= {"max_epochs": 2, "batch_sentences": 4}
    (tmp_path / "lm.yaml").write_text(yaml.safe_dump(config))
    assert nmt_train(tmp_path / "lm.yaml") == 0
    commands = re.findall(r"^(nmt-(?:score|sample) .*)$", GUIDE, re.M)
    assert len(commands) == 2
    for line in commands:
        name, *arguments = shlex.split(line)
        capsys.readouterr()
        assert COMMANDS[name].main(arguments) == 0
        assert capsys.readouterr().out
    options = re.findall(r"`(--[a-z-]+)(?: ([\d.]+))?`", GUIDE)
    assert {option for option, _ in options} == {"--per-token", "--by-line", "--json", "--dynamic"}
    for option, value in options:
        assert score.main(["runs/ptb", "--text", "ptb/ptb.test.txt", option, *([value] if value else [])]) == 0
