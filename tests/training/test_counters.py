"""What a run counts, patience, bad updates, the loss scale, goes on after a resume from where it was."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import load_config
from nmt.data.prepare import PreparedData, prepare
from nmt.tasks.translation import build_batches
from nmt.training import update as updates
from nmt.training.batches import Position
from nmt.training.run import build_ranking, build_updater
from nmt.training.task import task_of
from nmt.training.update import DivergedError, Precision, Updater
from tests.tiny_training import before_step, events, nmt_train, same, training_state, write_config, write_corpus

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int, config: Path, run: Path) -> None:
    """Train until SIGTERM arrives during the update after `step` others; that one is finished."""
    with monkeypatch.context() as patch:
        before_step(patch, step, lambda: os.kill(os.getpid(), signal.SIGTERM))
        assert nmt_train(config, "--set", f"run_dir={run}") == 143


@pytest.mark.parametrize("stopped", [5, 7])
def test_patience_goes_on_from_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch, stopped: int) -> None:
    """The loss never changes: the first validation is the best, and the third after it is one too many."""
    training = {"lr": 1e-30, "max_steps": None, "patience": 3, "validate_every": 2}
    config, straight, resumed = write_config(folder, training=training), folder / "straight", folder / "resumed"
    assert nmt_train(config, "--set", f"run_dir={straight}") == 0
    stop_at(monkeypatch, stopped, config, resumed)
    assert training_state(resumed, stopped + 1)["ranking"]["without_best"] == (stopped - 1) // 2 - 1
    assert nmt_train(config, "--set", f"run_dir={resumed}") == 0
    for run in (straight, resumed):
        assert [event["step"] for event in events(run, kinds=("validation",))] == [2, 4, 6, 8]
        assert events(run, kinds=("end",))[-1]["reason"].startswith("no better loss in 3 validations")


def test_skipped_updates_go_on_being_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with an infinite norm: the second, third and sixth batches, and after the resume the tenth."""
    clip = updates.clip_

    def run(name: str, *, stop: int | None) -> Path:
        calls = itertools.count(1)

        def clipped(parameters: Iterable[Tensor], max_norm: float) -> float:
            norm = clip(parameters, max_norm)
            return math.inf if next(calls) in (2, 3, 6, 10) else norm

        monkeypatch.setattr(updates, "clip_", clipped)
        config = write_config(folder, training={"early_stopping_metric": "loss"})
        if stop is not None:
            stop_at(monkeypatch, stop, config, folder / name)
        assert nmt_train(config, "--set", f"run_dir={folder / name}") == 0
        return folder / name

    straight, resumed = run("straight", stop=None), run("resumed", stop=5)
    assert [event["skipped"] for event in events(straight, kinds=("train",))] == [2, 3, 4, 4]
    assert events(resumed, kinds=("train",)) == events(straight, kinds=("train",))
    assert training_state(resumed, 6)["updater"]["guard"] == {"total": 3, "in_a_row": 0}
    assert training_state(straight, 12)["updater"]["guard"]["total"] == 4
    assert same(training_state(resumed, 12), training_state(straight, 12))


def test_updates_that_are_done_again_are_in_the_log_once(folder: Path) -> None:
    """As after a kill: the log knows of updates that no checkpoint has."""
    config, run = write_config(folder), folder / "run"
    assert nmt_train(config) == 0
    before = events(run, kinds=("train", "validation"))
    shutil.rmtree(run / "checkpoints" / "step-12")
    assert nmt_train(config) == 0
    assert [event["step"] for event in events(run, kinds=("train",))] == [3, 6, 9, 12]
    assert events(run, kinds=("train", "validation")) == before


def test_the_rate_of_a_schedule_goes_on_from_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss never changes, so that each validation but the first halves the rate; stopped after the second."""
    training = {"lr": 1e-30, "schedule": "score", "validate_every": 2, "max_steps": 8, "log_every": 1}
    config = write_config(folder, training=training | {"early_stopping_metric": "loss"})
    stop_at(monkeypatch, 4, config, folder / "run")
    assert nmt_train(config) == 0
    rates = [event["lr"] for event in events(folder / "run", kinds=("train",))]
    assert rates == [1e-30] * 4 + [5e-31] * 2 + [2.5e-31] * 2


def prepared(folder: Path, **training: Any) -> tuple[Any, PreparedData]:
    config = load_config(write_config(folder, training=training))
    return config, prepare(config, folder / "run", progress=False)


def continued(updater: Updater, config: Any, data: PreparedData, folder: Path) -> Updater:
    """A new updater that goes on from the saved state of another."""
    torch.save(updater.state_dict(), folder / "state.pt")
    after = build_updater(task_of(config), data.tokenizer, device=CPU)
    after.load(dict(updater.model.state_dict()), torch.load(folder / "state.pt", weights_only=True))
    return after


def test_bad_updates_in_a_row_may_not_begin_again_with_each_resume(folder: Path) -> None:
    config, data = prepared(folder, skip_norm=1e-9, max_bad_updates=3)
    groups = build_batches(config, data.train).groups(Position(1, 0))
    updater = build_updater(task_of(config), data.tokenizer, device=CPU)
    for _ in range(3):
        assert not updater.update(next(groups), step=0).applied
        updater = continued(updater, config, data, folder)
    with pytest.raises(DivergedError, match="4 consecutive updates"):
        updater.update(next(groups), step=0)


def test_an_update_that_is_skipped_is_none_of_the_moving_average(folder: Path) -> None:
    config, data = prepared(folder, ema_decay=0.5)
    groups = build_batches(config, data.train).groups(Position(1, 0))
    updater = build_updater(task_of(config), data.tokenizer, device=CPU)
    assert updater.ema is not None and updater.update(next(groups), step=0).applied
    before = {name: average.clone() for name, average in updater.ema.state_dict()["averages"].items()}
    updater.guard.skip_norm = 1e-9
    assert not updater.update(next(groups), step=1).applied
    assert updater.ema.updates == 1
    assert same(updater.ema.state_dict()["averages"], before)


@pytest.mark.parametrize(("metric", "higher"), [("loss", False), ("ter", False), ("bleu", True), ("chrf", True)])
def test_checkpoints_rank_in_the_direction_of_their_metric(folder: Path, metric: str, higher: bool) -> None:
    training = {"early_stopping_metric": metric}
    config = load_config(write_config(folder, training=training, evaluation={"metrics": ["bleu", "chrf", "ter"]}))
    ranking = build_ranking(task_of(config))
    ranking.add(1, 5.0, regular=True)
    assert ranking.add(2, 6.0, regular=True) is higher


def test_the_loss_scale_goes_on_from_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It doubles with every second good update, whether or not the process is another one."""
    monkeypatch.setattr(
        Precision, "grad_scaler", lambda self: torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    )
    config, data = prepared(folder)
    groups = build_batches(config, data.train).groups(Position(1, 0))
    updater = build_updater(task_of(config), data.tokenizer, device=CPU)
    scales = []
    for step in range(6):
        assert updater.update(next(groups), step=step).applied
        updater = continued(updater, config, data, folder)
        scales.append(updater.scaler.get_scale())
    assert scales == [8.0, 16.0, 16.0, 32.0, 32.0, 64.0]
