"""docs/run_directory.md is true: its tables are those of real runs, and what may be deleted may be."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.confidence import rating
from nmt.config import upgrade
from nmt.data import prepare
from nmt.interop import exported
from nmt.interop.engine import export as engine_file
from nmt.onnx_export import card
from nmt.search import shortlist
from nmt.synthetic import corpus as record
from nmt.training import state
from tests.conftest import REPOSITORY
from tests.console import call
from tests.tiny_training import nmt_train, write_config, write_corpus

PAGE = (REPOSITORY / "docs/run_directory.md").read_text(encoding="utf-8")
ONLY_AT_TIMES = {"too_long"}
METRICS = {"bleu"}


def items(after: str) -> dict[str, str]:
    """The list that begins after a text: what each entry has before its first colon, and the rest."""
    found = PAGE[PAGE.index(after) + len(after) :].split("\n\n")[1]
    entries = [" ".join(entry.split()) for entry in re.split(r"^- ", found, flags=re.M)[1:]]
    return {before: rest for before, _, rest in (entry.partition(": ") for entry in entries)}


NEEDED, DELETABLE = items("A run needs:"), items("These may be deleted:")


def names(cell: str) -> set[str]:
    """The names in a text, without those in parentheses, which explain others."""
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", cell)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all that can be in one; its parts are not changed."""
    folder = tmp_path_factory.mktemp("run_directory")
    write_corpus(folder)
    config = write_config(
        folder,
        data={"test": str(folder / "dev")},
        training={"sample_every": 6, "average_last": 2, "ema_decay": 0.9, "tensorboard": True, "keep_last": 2},
        evaluation={"keep_translations": True},
    )
    assert nmt_train(config, "--set", "training.max_steps=6") == 0
    assert nmt_train(config) == 0
    return folder / "run"


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_events_and_their_fields_are_those_of_the_log(run: Path) -> None:
    common = names(" ".join(items("Every line has")))
    listed = {before.split("`")[1]: names(rest) for before, rest in items("Further fields, by event:").items()}
    listed["train"] = names(" ".join(items("The fields of `train`"))) - ONLY_AT_TIMES
    for name in ("validation", "test"):
        listed[name] = (listed[name] | METRICS) - {"source", "reference", "translation"}
    found: dict[str, set[str]] = {}
    for event in events(run):
        assert common <= event.keys()
        found.setdefault(event["event"], set()).update(event.keys() - common)
    assert found == listed


def test_its_files_are_those_of_the_run(run: Path) -> None:
    listed = {name.split("/")[0] for name in re.findall(r"`([^`]+)`", " ".join(NEEDED | DELETABLE))}
    listed = {name.replace("LANGUAGE", "de") for name in listed}
    assert {path.name for path in run.iterdir()} == listed - {
        "corpus",
        "confidence.json",
    }  # of data.generator and nmt-confidence


def test_checkpoints_have_the_files_of_the_page(run: Path) -> None:
    checkpoint = run / "checkpoints/step-12"
    assert {path.name for path in checkpoint.iterdir()} == {
        name.strip("`") for name in items("all of its files are on the disk:")
    }
    torch.load(checkpoint / "training.pt", weights_only=True)


def test_what_may_be_deleted_is_not_needed_to_translate_and_to_resume(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    assert {"`cache/`", "`train.log`", "`lock`"} <= DELETABLE.keys()
    for name in ("cache", "validation", "average", "tensorboard", "checkpoints/step-6"):
        shutil.rmtree(copy / name)
    for name in ("train.log", "lock", "test.de", "test.average.de", "checkpoints/step-12/training.pt"):
        (copy / name).unlink()
    text, output = str(run.parent / "dev.en"), tmp_path / "out"
    assert call("nmt-translate", str(copy), "-i", text, "-o", str(output)) == 0
    assert len(output.read_text(encoding="utf-8").splitlines()) == 8
    shutil.copy(run / "checkpoints/step-12/training.pt", copy / "checkpoints/step-12/training.pt")
    assert nmt_train(run.parent / "tiny.yaml", "--set", f"run_dir={copy}") == 0
    assert (copy / "test.de").read_bytes() == (run / "test.de").read_bytes()
    assert (copy / "average/model.safetensors").is_file()


def test_a_language_model_has_the_fields_that_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b c d\n" * 60, encoding="utf-8")
    config = tmp_path / "lm.yaml"
    text = str(tmp_path / "text")
    config.write_text(
        f"run_dir: {tmp_path / 'run'}\ntask: language_model\n"
        "model: {architecture: language_model, cell: lrn, hidden_size: 8, embedding_size: 8}\n"
        f"data: {{train: {text}, dev: {text}, test: {text}, tokenizer: whitespace}}\n"
        "training: {max_steps: 4, batch_sentences: 2}\n",
        encoding="utf-8",
    )
    assert nmt_train(config) == 0
    found = {event["event"]: event for event in events(tmp_path / "run")}
    assert {"train_tokens", "dev_tokens", "test_tokens"} == {
        name for name in found["start"] if name.endswith("_tokens")
    }
    assert not [name for name in found["start"] if name.endswith("_pairs")]
    assert {"loss", "perplexity"} <= found["test"].keys()
    assert found["validation"]["samples"] == []


def test_the_numbers_of_formats_are_those_of_the_code() -> None:
    rows = re.findall(r"^- ([^(\n]*) \(.*\): (\d(?: or \d)?), since (\S+)\. ", PAGE, flags=re.M)
    numbers = {name: (number, since) for name, number, since in rows}
    assert {name.strip("`"): number for name, (number, _) in numbers.items()} == {
        "config.yaml": str(upgrade.FORMAT),
        "training.pt": str(state.STATE_FORMAT),
        "cache/": str(prepare._FORMAT),
        "shortlist": " or ".join(name.removeprefix("nmt-shortlist-") for name in shortlist._FORMATS),
        "exported folder": exported.VERSION,
        "engine file `.nmt": str(engine_file.VERSION),
        "ONNX folder": str(card.VERSION),
        "confidence.json": str(rating.FORMAT),
        "PREFIX.manifest.json": str(record.FORMAT),
    }
    changes = (REPOSITORY / "docs/CHANGELOG.md").read_text(encoding="utf-8")
    versions = set(re.findall(r"^## (\d+\.\d+\.\d+)", changes, flags=re.M))
    assert {since for _, since in numbers.values()} <= versions
