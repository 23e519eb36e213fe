"""Training with subwords drawn anew: the same for any number of processes, workers and resumes, with or without C."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from nmt.cli import train
from nmt.config import load_config
from nmt.data.prepare import prepare
from nmt.ops import native
from nmt.tasks.translation import build_batches
from nmt.training.batches import Position
from nmt.training.distributed import World
from tests.subword_run import write_subword_config
from tests.tiny_training import events, nmt_train

CPU, START = torch.device("cpu"), Position(1, 0)

Sentences = dict[tuple[int, int, int], tuple[list[int], list[int]]]
"""By epoch, batches of it so far (0 at its end) and row: source and target."""


def sentences(
    config_file: Path, *overrides: str, size: int = 1, start: Position = START, updates: int = 12
) -> Sentences:
    """Of so many updates, by all ranks."""
    config = load_config(config_file, overrides)
    data = prepare(config, config.run_dir, progress=False)
    found: Sentences = {}
    for rank in range(size):
        world = World(CPU)
        world.rank, world.size = rank, size
        stream = build_batches(config, data.train, world=world, sides=data.sides)
        for group in islice(stream.groups(start), updates):
            for batch in group.batches:
                both = (batch.source.tolist(), batch.target.tolist())
                for row, source, target in zip(batch.rows.tolist(), *both, strict=True):
                    place = (group.after.epoch - (group.after.batch == 0), group.after.batch, row)
                    pair = [i for i in source if i], [i for i in target if i]
                    assert found.setdefault(place, pair) == pair
    return found


@pytest.mark.parametrize("options", [{}, {"model_type": "unigram", "bpe_dropout": 0.0, "unigram_alpha": 0.1}])
def test_neither_processes_nor_workers_nor_a_resume_nor_c_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    config = write_subword_config(tmp_path, options=options, training={"batch_sentences": 16})
    wanted = sentences(config, updates=16)  # two epochs of eight batches
    assert len(wanted) == 240
    assert sentences(config, size=3, updates=16) == wanted
    other = (f"run_dir={tmp_path / 'other'}", "data.workers=2")
    assert sentences(config, *other, updates=16) == wanted
    loaded = load_config(config)
    data = prepare(loaded, loaded.run_dir, progress=False)
    middle = next(islice(build_batches(loaded, data.train, sides=data.sides).groups(START), 10, None)).after
    rest = sentences(config, start=middle, updates=5)
    assert rest == {place: wanted[place] for place in list(wanted)[11 * 16 - 8 :]} and middle.skip > 0
    monkeypatch.setattr(native, "problem", lambda source=None: "none are wanted")
    assert sentences(config, updates=16) == wanted


def test_epochs_differ_and_sampled_pairs_too(tmp_path: Path) -> None:
    train = [str(tmp_path / "train"), str(tmp_path / "dev")]
    config = write_subword_config(
        tmp_path, data={"train": train, "sampling_weights": [1.0, 2.0]}, training={"batch_sentences": 16}
    )
    by_row: dict[int, dict[int, set[str]]] = {}
    for (epoch, _, row), pair in sentences(config, updates=40).items():
        by_row.setdefault(row, {}).setdefault(epoch, set()).add(str(pair))
    several = [epochs for row, epochs in by_row.items() if row >= 120]
    assert len(several) == 8 and all(len(found) == 1 for epochs in several for found in epochs.values())
    assert np.mean([len(set.union(*epochs.values())) > 1 for epochs in several]) > 0.7


def test_the_log_says_what_it_does_and_what_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_subword_config(tmp_path, data={"max_length": 14}, options={"bpe_dropout": 0.9})
    assert nmt_train(config, "--set", "training.max_steps=6") == 0
    said = capsys.readouterr().err
    (line,) = (line for line in said.splitlines() if "again in each epoch" in line)
    assert "times the tokens" in line and "too long for it" in line
    logged = [event.get("too_long", 0) for event in events(tmp_path / "run", kinds=("train",))]
    assert len(logged) == 2 and all(logged)
    assert said.count("kept the usual subwords because of data.max_length") == 2
    assert str(logged[0]) in said


def test_a_dry_run_measures_what_is_trained_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_subword_config(tmp_path, training={"batch_sentences": None, "batch_tokens": 100})
    assert train.main(["--config", str(config), "--device", "cpu", "--dry-run"]) == 0
    first = capsys.readouterr().out
    assert "again in each epoch" in first
    change = ("--set", "data.tokenizer_options.bpe_dropout=0.0")
    assert train.main(["--config", str(config), "--device", "cpu", "--dry-run", *change]) == 0
    plain = capsys.readouterr().out
    assert "again in each epoch" not in plain
    batches = [int(text.partition("batches an epoch: ")[2].split()[0]) for text in (first, plain)]
    assert batches[0] > batches[1]


def test_a_run_of_an_older_version_goes_on(tmp_path: Path) -> None:
    """Its tokenizer was recorded without the options of sampling."""
    config = write_subword_config(tmp_path, options={"bpe_dropout": 0.0}, training={"max_steps": 2})
    assert nmt_train(config) == 0
    record = json.loads((tmp_path / "run/tokenizer/tokenizer.json").read_text())
    assert not [name for name in record["options"] if "dropout" in name or "alpha" in name]
    assert nmt_train(config, "--set", "training.max_steps=3") == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bpe_dropout": 1.5}, "bpe_dropout: 1.5 must be between 0 and 1"),
        ({"source_unigram_alpha": -0.5}, "source_unigram_alpha: -0.5 must be between 0 and 20"),
        ({"model_type": "unigram"}, "bpe_dropout: is for model_type: bpe, not unigram"),
        ({"unigram_alpha": 0.1}, "unigram_alpha: is for model_type: unigram, not bpe"),
        ({"bpe_droput": 0.1}, "Did you mean 'bpe_dropout'?"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, object], said: str
) -> None:
    assert nmt_train(write_subword_config(tmp_path, options=options)) == 2
    assert f"data.tokenizer_options.{said}" in capsys.readouterr().err or "Did you mean" in said


def test_a_model_of_another_kind_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unigram = write_subword_config(
        tmp_path, options={"model_type": "unigram", "bpe_dropout": 0.0}, training={"max_steps": 1}
    )
    assert nmt_train(unigram) == 0
    model = str(tmp_path / "run/tokenizer/joint.model")
    bpe = write_subword_config(tmp_path, options={"source_model": model})
    assert nmt_train(bpe, "--set", f"run_dir={tmp_path / 'other'}") == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "data.tokenizer_options.bpe_dropout: needs a bpe model" in said
