"""docs/getting_started.md is true: its commands run, in order, on a corpus of nonsense, and print what it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from nmt.config import load_config
from nmt.config.yaml12 import read_yaml
from nmt.corpora.faults import FAULTS
from nmt.corpora.sizes import configuration
from tests.conftest import page_of
from tests.console import call
from tests.tiny_training import write_corpus

GUIDE = page_of("docs/getting_started.md")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, flags=re.M | re.S)
SMALL = {
    "model.embedding_size": 16,
    "model.architecture_options": "{encoder_layers: 1, decoder_layers: 1, heads: 2}",
    "data.tokenizer_options.vocab_size": 320,
    "data.workers": 1,
    "training.max_steps": 4,
    "training.validate_every": 2,
    "training.precision": "fp32",
    "decoding.beam_size": 2,
}
HELD_OUT = ["--dev", "20", "--hold-out", "20"]
"""Of the small corpus, some of whose words are short."""


def shape(line: str) -> str:
    """A line of output with its numbers and its spaces made one."""
    return re.sub(r"\s+", " ", re.sub(r"[\d,.]+%?", "N", line)).strip()


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus").mkdir()
    write_corpus(Path("corpus"), train=400)
    for language in ("en", "de"):
        Path(f"corpus/train.{language}").rename(f"corpus/all.{language}")
    small = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
    printed, ran = "", []
    for language, text in BLOCKS:
        if language == "yaml":
            made = configuration("mine", "runs/mine", ("en", "de"), 28_005, held_out=("dev", "test"))
            assert read_yaml(text, origin="page").value == read_yaml(made, origin="command").value
        elif language == "text":
            known = {shape(line) for line in printed.splitlines()}
            known |= {shape(f"{name} 0 {meaning}") for name, meaning in FAULTS.items()}  # of which the corpus has two
            assert [line for line in text.splitlines() if shape(line) not in known] == []
        else:
            capfd.readouterr()
            for line in text.splitlines():
                name, *arguments = shlex.split(line)
                if name.startswith("nmt-"):
                    more = [*small, "--device", "cpu"] if name == "nmt-train" else []
                    more += HELD_OUT if arguments[0] == "prepare" else []
                    assert call(name, *arguments, *more) == 0, (line, capfd.readouterr().err)
                else:
                    subprocess.run(["bash", "-c", line], check=True)
                ran.append(name)
            outputs = capfd.readouterr()
            printed = outputs.out + outputs.err
    assert {
        "nmt-data",
        "nmt-train",
        "nmt-plot",
        "nmt-translate",
        "nmt-eval",
        "nmt-export",
        "nmt-check",
    } <= set(ran)
    held_out = [Path(f"mine/{name}.en").read_text(encoding="utf-8").splitlines() for name in ("dev", "test")]
    training = Path("mine/train.en").read_text(encoding="utf-8").splitlines()
    assert [len(lines) for lines in held_out] == [20, 20] and len(training) > 200
    assert not set(training) & {line for lines in held_out for line in lines}
    assert len(Path("test.de").read_text(encoding="utf-8").splitlines()) == 20


def test_its_configuration_is_the_bundled_one_that_was_measured(tmp_path: Path) -> None:
    (text,) = [text for language, text in BLOCKS if language == "yaml"]
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    mine, measured = load_config(tmp_path / "mine.yaml"), load_config("multi30k.yaml")
    options, measured_options = dict(mine.model.architecture_options), dict(measured.model.architecture_options)
    for side in ("encoder", "decoder"):  # none: twice the width
        assert options.pop(f"{side}_feed_forward") is None
        assert measured_options.pop(f"{side}_feed_forward") == 2 * measured.model.embedding_size
    assert options == measured_options
    for name in ("cell", "embedding_size", "tie_embeddings", "dropout"):
        assert getattr(mine.model, name) == getattr(measured.model, name)
    for name in yaml.safe_load(text)["training"]:
        assert getattr(mine.training, name) == getattr(measured.training, name), name
    assert mine.data.tokenizer_options["vocab_size"] == measured.data.tokenizer_options["vocab_size"]


def test_each_setting_of_the_sizes_is_a_key_and_the_measured_ones_are_those_of_the_files(tmp_path: Path) -> None:
    (text,) = [text for language, text in BLOCKS if language == "yaml"]
    rows = re.findall(r"^\| `(model|data|training)\.([\w.]+)` \|(.*)\|$", GUIDE, flags=re.M)
    assert len(rows) == 7
    for column in range(4):
        config = yaml.safe_load(text)
        for section, key, values in rows:
            *path, last = key.split(".")
            place = config[section]
            for step in path:
                place = place[step]
            place[last] = yaml.safe_load(values.split("|")[column])
        (tmp_path / "sized.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        sized = load_config(tmp_path / "sized.yaml")
        if column in (1, 2):
            like = load_config(("multi30k.yaml", "tatoeba.yaml")[column - 1])
            assert sized.model.dropout == like.model.dropout
            assert sized.data.tokenizer_options["vocab_size"] == like.data.tokenizer_options["vocab_size"]
            for name in ("batch_tokens", "lr", "max_epochs", "dropout_warmup_steps"):
                assert getattr(sized.training, name) == getattr(like.training, name), name
