"""docs/distillation.md and docs/monolingual.md are true: their commands, configurations and Python run, in small."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path

import pytest
import yaml

from nmt.config import Config, load_config
from nmt.data.prepare import training_prefixes
from nmt.errors import ConfigError
from tests.conftest import page_of
from tests.console import call, parser_of
from tests.test_readme import TINY
from tests.tiny_training import write_corpus

GUIDES = ("distillation", "monolingual")
TEXT = {name: page_of(f"docs/{name}.md") for name in GUIDES}
ENOUGH = {
    "training.max_steps": 60,
    "training.validate_every": 60,
    "training.lr": 0.02,
    "training.schedule_options.warmup_steps": 1,
    "decoding.max_length_offset": 60,
}
"""What it takes that a teacher ends its sentences, which are pairs for a student only then."""
SMALL = [part for key, value in {**TINY, **ENOUGH}.items() for part in ("--set", f"{key}={value}")]
LAUNCHER = "torchrun --standalone --nproc-per-node 2 -m nmt.synthetic.distill "


def blocks(name: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT[name], flags=re.M | re.S)
    return [text for kind, text in found if kind == language]


def commands(name: str) -> list[list[str]]:
    lines = [line for block in blocks(name, "") for line in block.splitlines()]
    return [
        shlex.split(line.replace(LAUNCHER, "nmt-distill ")) for line in lines if line.startswith(("nmt-", LAUNCHER))
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of nonsense in place of Multi30k, and a few lines of it as captions."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path, train=60)
    for place in ("data/multi30k", "captions"):
        (tmp_path / place).mkdir(parents=True)
    for language in ("en", "de"):
        for name, text in (("train", "train"), ("val", "dev"), ("test_2016_flickr", "dev")):
            content = gzip.compress(Path(f"{text}.{language}").read_bytes())
            (tmp_path / f"data/multi30k/{name}.{language}.gz").write_bytes(content)
        for number in (1, 2):
            content = gzip.compress(Path(f"dev.{language}").read_bytes())
            (tmp_path / f"captions/train.{number}.{language}.gz").write_bytes(content)
    return tmp_path


@pytest.mark.parametrize("name", GUIDES)
def test_each_line_of_a_block_is_a_command_that_exists(name: str) -> None:
    assert len(commands(name)) > 5
    for command, *arguments in commands(name):
        parser_of(command).parse_args(arguments)


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_the_commands_in_small(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for command, *arguments in commands(name):
        more = [*SMALL, "--device", "cpu"] if command == "nmt-train" else []
        if "runs/teacher_2" in arguments and not Path("runs/teacher_2").exists():
            assert call("nmt-train", "multi30k_lrn.yaml", "--set", "run_dir=runs/teacher_2", *SMALL) == 0
        assert call(command, *arguments, *more) == 0, (command, arguments, capfd.readouterr().err)
    for prefix in Path("data").glob("*.manifest.json"):
        sides = [Path(str(prefix).replace("manifest.json", language)) for language in ("en", "de")]
        assert len({side.read_bytes().count(b"\n") for side in sides}) == 1


@pytest.mark.parametrize("name", GUIDES)
def test_its_configurations_load(name: str, tmp_path: Path) -> None:
    for block in blocks(name, "yaml"):
        (tmp_path / "guide.yaml").write_text(f"run_dir: run\n{block}", encoding="utf-8")
        config: Config = load_config(tmp_path / "guide.yaml")
        weights = config.data.sampling_weights
        assert weights is None or len(weights) == len(training_prefixes(config.data)) > 1
        if config.data.monolingual:
            assert config.data.monolingual_tag == "<BT>"
            without = {"run_dir": "run", **yaml.safe_load(block)}
            del without["data"]["tokenizer_options"]["symbols"]
            (tmp_path / "guide.yaml").write_text(yaml.safe_dump(without), encoding="utf-8")
            with pytest.raises(ConfigError) as error:
                load_config(tmp_path / "guide.yaml")
            (shown,) = [shown for shown in blocks(name, "") if shown.startswith("data.")]
            assert shown.strip() in str(error.value)
