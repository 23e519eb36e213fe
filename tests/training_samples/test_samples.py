"""Samples of training text: the right sentences, at the right updates, and nothing else changes."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt.cli import translate
from nmt.config import load_config
from nmt.data.prepare import prepare
from nmt.search.translator import Translator
from nmt.tasks.translation import build_batches
from nmt.training.batches import Position
from nmt.training.run import build_updater
from nmt.training.state import random_state
from nmt.training.task import task_of
from tests.tiny_training import events, nmt_train, same, training_state, write_config, write_corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def test_sentences_are_the_first_of_the_last_batch_and_translated_by_the_weights_of_that_update(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = {"accumulate": 2, "sample_every": 4, "sample_sentences": 3, "save_every": 4, "keep_last": 9, "lr": 0.05}
    config_file, run = write_config(folder, training=training), folder / "run"
    assert nmt_train(config_file) == 0
    said = capsys.readouterr().err
    found = events(run, kinds=("samples",))
    assert [event["step"] for event in found] == [4, 8, 12]
    config = load_config(config_file)
    stream = build_batches(config, prepare(config, run, progress=False).train)
    groups = list(islice(stream.groups(Position(1, 0)), 12))
    lines = {side: (folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")}
    for event in found:
        batch = groups[event["step"] - 1].batches[-1]
        rows = [int(row) for row in batch.rows[:3]]
        assert [sample["source"] for sample in event["samples"]] == [lines["en"][row] for row in rows]
        assert [sample["target"] for sample in event["samples"]] == [lines["de"][row] for row in rows]
        source, output = folder / "source", folder / "output"
        source.write_text("".join(f"{sample['source']}\n" for sample in event["samples"]))
        model = str(run / f"checkpoints/step-{event['step']}")
        assert translate.main([model, "-i", str(source), "-o", str(output), "--device", "cpu"]) == 0
        translations = [sample["translation"] for sample in event["samples"]]
        assert output.read_text(encoding="utf-8").splitlines() == translations
        assert f"training text after update {event['step']}\n" in said
        assert all(f"  translation {line}".rstrip() in said for line in translations)


def test_weights_and_random_numbers_are_those_of_a_run_without_samples(folder: Path) -> None:
    config = write_config(folder, training={"ema_decay": 0.9}, model={"dropout": 0.5})
    runs = folder / "with", folder / "without"
    for run, more in zip(runs, (("--set", "training.sample_every=1"), ()), strict=True):
        assert nmt_train(config, "--set", f"run_dir={run}", *more) == 0
    assert len(events(runs[0], kinds=("samples",))) == 12 and not events(runs[1], kinds=("samples",))
    assert same(training_state(runs[0], 12), training_state(runs[1], 12))
    assert events(runs[0]) == events(runs[1])


def test_a_search_that_draws_random_numbers_does_not_disturb_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Translator.search

    def drawing(self: Translator, sources: list[list[int]]) -> list[list[object]]:
        random.random(), np.random.rand(), torch.rand(3)
        return original(self, sources)

    monkeypatch.setattr(Translator, "search", drawing)
    config = load_config(write_config(folder, training={"sample_every": 1}))
    data = prepare(config, folder / "run", progress=False)
    device = torch.device("cpu")
    model = build_updater(task_of(config), data.tokenizer, device=device).model.eval()
    samples = task_of(config).build_samples(data, device=device)
    assert samples is not None
    before = random_state()
    assert len(samples.take(model, np.arange(8))) == 5
    assert same(before, random_state())
