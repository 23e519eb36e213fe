"""What dropout hides in an update: a function of seed and place in the data, of nothing that happened before."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.cells import Cell
from nmt.config import load_config
from nmt.data.prepare import prepare
from nmt.models.parts import Dropout
from nmt.tasks.translation import build_batches, build_sampler
from nmt.training import trainer
from nmt.training.batches import BatchStream, Position
from nmt.training.distributed import Share
from nmt.training.run import build_updater
from nmt.training.state import random_state
from nmt.training.task import task_of
from tests.tiny_training import nmt_train, same, training_state, write_config, write_corpus

Sentence = tuple[int, int, int]
"""Key of the masks, place in the whole batch, row of the corpus."""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    write_corpus(tmp_path, train=61)
    model = {"dropout": 0.3, "recurrent_dropout": 0.3, "cell": "lstm"}
    return write_config(tmp_path, model=model, training={"batch_sentences": 12, "accumulate": 2})


def sentences(config_file: Path, *, accumulate: int, size: int, position: Position, updates: int) -> set[Sentence]:
    """Of so many updates, by all ranks."""
    config = load_config(config_file)
    corpus = prepare(config, config.run_dir, progress=False).train
    found = []
    for rank in range(size):
        stream = BatchStream(
            corpus, build_sampler(config, corpus), accumulate=accumulate, share=Share(rank, size), seed=config.seed
        )
        for group in islice(stream.groups(position), updates):
            for batch, masks in zip(group.batches, group.masks, strict=True):
                found += [(masks.key, masks.first + index, int(row)) for index, row in enumerate(batch.rows)]
    assert len({(key, place) for key, place, _ in found}) == len(found), "two sentences have the same masks"
    return set(found)


def test_neither_processes_nor_accumulation_nor_a_resume_change_masks(config_file: Path) -> None:
    start = Position(1, 0)
    wanted = sentences(config_file, accumulate=1, size=1, position=start, updates=18)  # three epochs of six batches
    assert len(wanted) == 3 * 61
    for accumulate, size in ((1, 3), (2, 1), (3, 2)):
        found = sentences(config_file, accumulate=accumulate, size=size, position=start, updates=18 // accumulate)
        assert found == wanted
    config = load_config(config_file)
    stream = build_batches(config, prepare(config, config.run_dir, progress=False).train)
    position = next(islice(stream.groups(start), 3, None)).after  # after 6 + 2 batches
    rest = sentences(config_file, accumulate=2, size=2, position=position, updates=1)
    assert rest < wanted and rest


def test_the_seed_changes_masks(config_file: Path) -> None:
    keys = []
    for seed in (1, 2):
        config = load_config(config_file, [f"seed={seed}"])
        corpus = prepare(config, config.run_dir, progress=False).train
        keys.append({group.masks[0].key for group in islice(build_batches(config, corpus).groups(Position(1, 0)), 4)})
    assert not keys[0] & keys[1]


def weights_after(config_file: Path, *, seed: int, precision: str) -> dict[str, Tensor]:
    """Of two updates that begin when torch's generator has this seed, from which they take nothing."""
    config = load_config(config_file, [f"training.precision={precision}"])
    data = prepare(config, config.run_dir, progress=False)
    updater = build_updater(task_of(config), data.tokenizer, device=torch.device("cpu"))
    torch.manual_seed(seed)
    before = random_state()
    for step, group in enumerate(islice(build_batches(config, data.train).groups(Position(1, 0)), 2)):
        updater.update(group, step=step)
    assert same(random_state(), before)
    return {name: weight.detach().clone() for name, weight in updater.model.named_parameters()}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_updates_take_nothing_from_the_generators(config_file: Path, precision: str) -> None:
    first, second = (weights_after(config_file, seed=seed, precision=precision) for seed in (3, 4))
    assert same(first, second)


def test_a_run_goes_on_alike_whatever_state_generators_are_in(
    config_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an epoch, with dropout: the states of generators are saved for plugins alone."""
    limits: Any = ("--set", "training.max_steps=4", "--set", f"run_dir={tmp_path / 'one'}")
    assert nmt_train(config_file, *limits) == 0
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    for name in ("one", "other"):
        assert nmt_train(config_file, "--set", "training.max_steps=6", "--set", f"run_dir={tmp_path / name}") == 0
        monkeypatch.setattr(trainer, "set_random_state", lambda state: torch.manual_seed(99))
    states = [training_state(tmp_path / name, 6) for name in ("one", "other")]
    assert not same(*(part.pop("random") for part in states))
    assert same(*states)


def test_dropouts_grow_to_their_values(config_file: Path) -> None:
    def after(updates: list[int], *overrides: str) -> tuple[dict[str, Tensor], set[float], set[float]]:
        config = load_config(config_file, overrides)
        data = prepare(config, config.run_dir, progress=False)
        updater = build_updater(task_of(config), data.tokenizer, device=torch.device("cpu"))
        for step, group in zip(updates, build_batches(config, data.train).groups(Position(1, 0)), strict=False):
            updater.update(group, step=step)
        layers = {round(module.p, 9) for module in updater.model.modules() if isinstance(module, Dropout)}
        units = {round(module.recurrent_dropout, 9) for module in updater.model.modules() if isinstance(module, Cell)}
        return updater.model.state_dict(), layers, units

    growing = ["training.dropout_warmup_steps=4", "model.recurrent_dropout=0.2"]
    assert after([0, 1], *growing)[1:] == ({0.075}, {0.05})
    assert after([3], *growing)[1:] == ({0.225}, {0.15})
    assert after([4], *growing)[1:] == after([9], *growing)[1:] == after([0], growing[1])[1:] == ({0.3}, {0.2})
    first, without = (after([0], *keys)[0] for keys in (growing, ["model.dropout=0", "model.recurrent_dropout=0"]))
    assert same(first, without)
    whole, later = (after([5, 6], *keys)[0] for keys in (growing[1:], growing))
    assert same(later, whole)
