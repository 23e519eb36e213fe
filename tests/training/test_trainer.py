"""The training loop: what is minimised, what is logged, when it validates, saves and ends."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import load_config
from nmt.data.prepare import PreparedData, prepare
from nmt.errors import ConfigError
from nmt.tasks.translation import build_batches
from nmt.training.batches import BatchStream, Group, Position
from nmt.training.distributed import World
from nmt.training.losses import BatchLoss, CrossEntropy, TrainingBatch
from nmt.training.run import build_limits, build_updater
from nmt.training.state import Budget
from nmt.training.task import task_of
from nmt.training.update import Precision
from tests.cross_entropy import reference_cross_entropy
from tests.tiny_training import events, nmt_train, training_state, write_config, write_corpus

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def prepared(folder: Path, **changes: dict[str, Any]) -> tuple[Any, PreparedData]:
    config = load_config(write_config(folder, **changes))
    return config, prepare(config, folder / "run", progress=False)


def first_group(config: Any, data: PreparedData) -> Group:
    return next(build_batches(config, data.train).groups(Position(1, 0)))


def test_accumulated_batches_weigh_every_target_token_the_same(folder: Path) -> None:
    """The gradient is that of all token losses over all tokens, though the batches differ in size."""
    config, data = prepared(folder, training={"accumulate": 3, "clip_norm": 0.0, "lr": 1e-9}, model={"dropout": 0.0})
    group = first_group(config, data)
    assert len({int((batch.target != 0).sum()) for batch in group.batches}) > 1
    updater = build_updater(task_of(config), data.tokenizer, device=CPU)
    update = updater.update(group, step=0)
    found = {name: weight.grad.clone() for name, weight in updater.model.named_parameters() if weight.grad is not None}

    model = build_updater(task_of(config), data.tokenizer, device=CPU).model
    total, nll = torch.zeros(()), torch.zeros(())
    for batch in group.batches:
        logits, words = model(batch.source, batch.target), batch.target != 0
        total = total + reference_cross_entropy(logits[words], batch.target[words], label_smoothing=0.1).sum()
        nll = nll + reference_cross_entropy(logits[words], batch.target[words]).sum()
    (total / group.target_tokens).backward()
    assert update.objective == pytest.approx(total.item() / group.target_tokens, rel=1e-5)
    assert update.nll == pytest.approx(nll.item(), rel=1e-5)
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(found[name], weight.grad, rtol=1e-4, atol=1e-7)


class Summed(World):
    """Another process that has all batches: it brings gradients of 65536, which is the first loss scale."""

    def add_up(self, weights: Sequence[Tensor], sums: Tensor) -> list[float]:
        for weight in weights:
            weight.grad = torch.full_like(weight, 65536.0)
        return [65536.0, 1.0]


def test_a_process_without_a_batch_scales_as_the_others_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, data = prepared(folder, training={"clip_norm": 0.0})
    monkeypatch.setattr(Precision, "grad_scaler", lambda self: torch.amp.GradScaler("cpu"))
    updater = build_updater(task_of(config), data.tokenizer, device=CPU, world=Summed(CPU))
    group = dataclasses.replace(first_group(config, data), batches=(), sentences=(), masks=())
    update = updater.update(group, step=0)
    count = sum(weight.numel() for weight in updater.model.parameters())
    assert update.applied
    assert update.grad_norm == pytest.approx(count**0.5)


def test_gradient_is_clipped_and_the_norm_reported_is_the_one_before(folder: Path) -> None:
    config, data = prepared(folder, training={"clip_norm": 0.001})
    updater = build_updater(task_of(config), data.tokenizer, device=CPU)
    update = updater.update(first_group(config, data), step=0)
    grads = [weight.grad for weight in updater.model.parameters() if weight.grad is not None]
    assert update.grad_norm > 0.01
    assert float(torch.linalg.vector_norm(torch.stack([grad.norm() for grad in grads]))) == pytest.approx(0.001)


def test_stream_is_the_same_from_any_position_and_with_a_thread(folder: Path) -> None:
    config, data = prepared(folder, training={"accumulate": 4})
    stream = build_batches(config, data.train)

    def taken(groups: Any, count: int) -> list[tuple[Position, list[list[int]]]]:
        return [(group.after, [batch.rows.tolist() for batch in group.batches]) for group in islice(groups, count)]

    straight = taken(stream.groups(Position(1, 0)), 9)
    # Pools of 4 batches
    places = [(1, 4, 1, 0), (1, 8, 2, 0), (1, 12, 3, 0), (2, 0, 0, 0), (2, 4, 1, 0)]
    assert [after for after, _ in straight][:5] == places
    rows = [row for _, batches in straight[:4] for batch in batches for row in batch]
    assert sorted(rows) == list(range(len(data.train))), "an epoch is every pair once"
    assert rows != [row for _, batches in straight[4:8] for batch in batches for row in batch]
    with stream.prefetched(Position(1, 0)) as groups:
        assert taken(groups, 9) == straight
    for skipped in (1, 4, 6):
        assert taken(stream.groups(straight[skipped - 1][0]), 9 - skipped) == straight[skipped:]


def test_stream_goes_on_inside_a_pool(folder: Path) -> None:
    """Updates of 3 batches from pools of 4: what is left of a pool comes first, whoever begins there."""
    config, data = prepared(folder, training={"accumulate": 3})
    stream = build_batches(config, data.train)
    straight = list(islice(stream.groups(Position(1, 0)), 8))
    assert {group.after.skip for group in straight} >= {1, 2, 3}
    for done, group in enumerate(straight[:-1], start=1):
        (following,) = islice(stream.groups(group.after), 1)
        assert [batch.rows.tolist() for batch in following.batches] == [
            batch.rows.tolist() for batch in straight[done].batches
        ]
        assert following.after == straight[done].after


def test_padding_is_counted_in_the_positions_of_batches_and_not_in_their_tokens(folder: Path) -> None:
    config, data = prepared(folder, training={"accumulate": 3})
    group = first_group(config, data)
    sides = [side for batch in group.batches for side in (batch.source, batch.target)]
    assert group.cells == sum(side.numel() for side in sides)
    assert group.tokens == sum(int((side != 0).sum()) for side in sides) < group.cells


def test_error_in_the_batch_thread_reaches_the_trainer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, data = prepared(folder)
    stream = build_batches(config, data.train)

    def broken(self: BatchStream, position: Position) -> Any:
        raise OSError("the disk is gone")
        yield

    monkeypatch.setattr(BatchStream, "groups", broken)
    with stream.prefetched(Position(1, 0)) as groups, pytest.raises(OSError, match="the disk is gone"):
        next(groups)


def test_log_has_the_mean_loss_of_the_tokens_since_the_last_line(folder: Path) -> None:
    config = write_config(folder, training={"log_every": 1, "max_steps": 6})
    assert nmt_train(config) == 0
    single = events(folder / "run", kinds=("train",))
    assert nmt_train(config, "--overwrite", "--set", "training.log_every=6") == 0
    (line,) = events(folder / "run", kinds=("train",))
    _, data = prepared(folder)
    tokens = [
        group.target_tokens
        for group in islice(build_batches(load_config(config), data.train).groups(Position(1, 0)), 6)
    ]
    mean = sum(event["loss"] * count for event, count in zip(single, tokens, strict=True)) / sum(tokens)
    assert line["loss"] == pytest.approx(mean, rel=1e-6)
    assert line["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5)
    assert line["grad_norm"] == pytest.approx(sum(event["grad_norm"] for event in single) / 6, rel=1e-6)
    lines = [json.loads(text) for text in (folder / "run/log.jsonl").read_text().splitlines()]
    (complete,) = [event for event in lines if event["event"] == "train"]
    assert complete.keys() >= {"seconds", "target_tokens_per_second", "memory_mb", "padding", "skipped", "lr", "epoch"}


@pytest.mark.parametrize("normalization", ["token", "sentence"])
def test_the_loss_is_the_cross_entropy_of_validation_and_the_objective_has_its_own_name(
    folder: Path, normalization: str
) -> None:
    """Of weights that stay what they are, on the same text, whatever is smoothed and how it is normalised."""
    training = {"lr": 1e-12, "max_epochs": 1, "max_steps": None, "log_every": 1000, "validate_every": 1000}
    training["normalization"], data = normalization, {"dev": str(folder / "train")}
    assert nmt_train(write_config(folder, training=training, data=data, model={"dropout": 0.0})) == 0
    trained, validated = events(folder / "run", kinds=("train", "validation"))
    assert trained["loss"] == pytest.approx(validated["loss"], rel=1e-6)
    assert trained["perplexity"] == pytest.approx(validated["perplexity"], rel=1e-6)
    assert abs(trained["objective"] - trained["loss"]) > 0.01
    shown = f"loss {trained['loss']:.4f}  ppl {trained['perplexity']:.2f}  objective {trained['objective']:.4f}  norm"
    assert shown in read_text(folder)


def test_an_objective_that_is_the_loss_is_not_shown(folder: Path) -> None:
    training = {"label_smoothing": 0.0, "max_steps": 2}
    assert nmt_train(write_config(folder, training=training)) == 0
    (trained,) = events(folder / "run", kinds=("train",))
    assert trained["objective"] == pytest.approx(trained["loss"], rel=1e-6)
    assert re.search(r"update 2  .*  ppl \d+\.\d\d  norm ", read_text(folder))


def test_log_says_how_long_it_waited_and_how_long_it_will_take(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = BatchStream.groups

    def slow(self: BatchStream, position: Position) -> Iterator[Group]:
        for group in original(self, position):
            time.sleep(0.2)
            yield group

    monkeypatch.setattr(BatchStream, "groups", slow)
    config = write_config(folder, training={"log_every": 2, "max_steps": 4, "validate_every": None})
    assert nmt_train(config) == 0
    lines = [json.loads(line) for line in (folder / "run/log.jsonl").read_text().splitlines()]
    first, last = (line for line in lines if line["event"] == "train")
    assert 0.4 < first["data_wait"] <= 1
    assert 0.1 < first["eta_seconds"] < 30
    assert last["eta_seconds"] == 0
    assert re.search(r"update 2 .*padding \d+\.\d%  data wait \d+\.\d%.* s left$", read_text(folder), flags=re.M)


def read_text(folder: Path) -> str:
    return (folder / "run/train.log").read_text(encoding="utf-8")


def not_finite_at(monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> None:
    """Calls of the training loss with these numbers give NaN."""
    original, calls = CrossEntropy.__call__, iter(range(10_000))

    def loss(self: CrossEntropy, batch: TrainingBatch) -> BatchLoss:
        found = original(self, batch)
        factor = math.nan if next(calls) in steps else 1.0
        return BatchLoss(*(values * factor for values in found))

    monkeypatch.setattr(CrossEntropy, "__call__", loss)


def test_update_that_is_not_finite_is_skipped_and_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    not_finite_at(monkeypatch, {1, 2, 7})
    config = write_config(folder, training={"max_bad_updates": 2})
    assert nmt_train(config) == 0
    last = events(folder / "run", kinds=("train",))[-1]
    assert last["skipped"] == 3 and last["step"] == 12
    state = training_state(folder / "run", 12)
    assert state["progress"]["batch"] == 15 or state["progress"]["epoch"] == 2, "skipped batches are used up"
    weights = state["updater"]["optimizer"]["state"]["state"]
    assert all(torch.isfinite(moment["exp_avg"]).all() for moment in weights.values())


def test_update_above_the_bound_is_skipped_and_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bound lies between the two largest norms."""
    config = write_config(folder, training={"log_every": 1, "max_bad_updates": 99})
    assert nmt_train(config) == 0
    norms = [event["grad_norm"] for event in events(folder / "run", kinds=("train",))]
    second, largest = sorted(norms)[-2:]
    first, bound = norms.index(largest), (second + largest) / 2
    capsys.readouterr()
    assert nmt_train(config, "--overwrite", "--set", f"training.skip_norm={bound}") == 0
    lines = events(folder / "run", kinds=("train",))
    assert [line["grad_norm"] for line in lines[:first]] == norms[:first]
    assert [line["skipped"] for line in lines[: first + 1]] == [0] * first + [lines[first]["skipped"]]
    assert lines[first]["skipped"] >= 1 and max(line["grad_norm"] for line in lines) <= bound
    (said, *_) = [line for line in capsys.readouterr().err.splitlines() if "update skipped" in line]
    norm = re.search(r"gradient norm ([\d.]+), above training.skip_norm", said)
    assert norm is not None and float(norm[1]) == pytest.approx(norms[first], rel=1e-6)


def test_too_many_bad_updates_in_a_row_end_training(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    not_finite_at(monkeypatch, set(range(7, 1000)))
    config = write_config(folder, training={"max_bad_updates": 2})
    assert nmt_train(config) == 1
    said = capsys.readouterr().err
    assert said.count("update skipped") == 2
    assert "3 consecutive updates" in said.splitlines()[-1] and "max_bad_updates" in said.splitlines()[-1]
    assert (folder / "run/checkpoints/step-6").is_dir()


def test_training_ends_after_max_epochs(folder: Path) -> None:
    config = write_config(
        folder, training={"max_steps": None, "max_epochs": 2, "batch_sentences": 50, "validate_every": None}
    )
    assert nmt_train(config) == 0
    assert [event["step"] for event in events(folder / "run", kinds=("validation",))] == [3, 6], "once an epoch"
    assert [event["step"] for event in events(folder / "run", kinds=("checkpoint",))] == [3, 6], "with each validation"


def test_the_rate_falls_with_each_epoch_that_ends_the_first_one_too(folder: Path) -> None:
    training = {"schedule": "epoch", "max_epochs": 3, "max_steps": None, "batch_sentences": 40, "log_every": 1}
    assert nmt_train(write_config(folder, training=training | {"validate_every": None})) == 0
    rates = [event["lr"] for event in events(folder / "run", kinds=("train",))]
    assert rates == [0.01] * 3 + [0.005] * 3 + [0.0025] * 3


def test_the_rate_falls_with_each_validation_that_is_no_better(folder: Path) -> None:
    """At such a rate the loss stays as it is: the first validation is the best, each other one a bad one."""
    training = {"schedule": "score", "lr": 1e-30, "validate_every": 2, "max_steps": 8, "log_every": 1}
    assert nmt_train(write_config(folder, training=training | {"early_stopping_metric": "loss"})) == 0
    rates = [event["lr"] for event in events(folder / "run", kinds=("train",))]
    assert rates == [1e-30] * 4 + [5e-31] * 2 + [2.5e-31] * 2


def test_corpora_are_sampled_as_configured_and_that_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """128 pairs an epoch in batches of 8, of which 32 are the 8 pairs of dev, 4 times each."""
    monkeypatch.chdir(folder)
    data = {"train": ["train", "dev"], "sampling_weights": [3.0, 1.0]}
    config, found = prepared(folder, data=data)
    groups = islice(build_batches(config, found.train).groups(Position(1, 0)), 16)
    rows = [row for group in groups for batch in group.batches for row in batch.rows]
    assert len(rows) == 128 and sorted(row for row in rows if row >= 120) == sorted([*range(120, 128)] * 4)
    assert nmt_train(write_config(folder, data=data, training={"max_steps": 1})) == 0
    said = capsys.readouterr().err
    assert "train: 75.0% of an epoch from train: 120 pairs, each 0.8 times on average" in said
    assert "train: 25.0% of an epoch from dev: 8 pairs, each 4 times on average" in said
    assert "batches an epoch: 16 for 16 updates" in said


def test_a_corpus_to_sample_from_must_have_pairs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for language in ("en", "de"):
        (folder / f"blank.{language}").write_text(" \n" * 3)
    data = {"train": [str(folder / "train"), str(folder / "blank")], "sampling_temperature": 5.0}
    assert nmt_train(write_config(folder, data=data)) == 1
    assert f"data.train: no pair of {folder / 'blank'} was kept" in capsys.readouterr().err.splitlines()[-1]


def test_patience_ends_training(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a rate of almost zero BLEU stays 0, so the first validation remains the best."""
    changes = {"max_steps": None, "patience": 2, "validate_every": 1, "lr": 1e-12, "early_stopping_metric": "bleu"}
    assert nmt_train(write_config(folder, training=changes)) == 0
    validations = events(folder / "run", kinds=("validation",))
    assert [event["new_best"] for event in validations] == [True, False, False]
    assert "no better bleu in 2 validations" in capsys.readouterr().err
    assert (folder / "run/checkpoints/step-1").is_dir() and (folder / "run/checkpoints/step-3").is_dir()


def test_last_update_is_validated_and_saved_whatever_the_frequencies(folder: Path) -> None:
    changes = {"max_steps": 5, "validate_every": 4, "save_every": 3, "keep_last": 9, "keep_best": 0}
    assert nmt_train(write_config(folder, training=changes)) == 0
    order = [(event["event"], event["step"]) for event in events(folder / "run", kinds=("validation", "checkpoint"))]
    assert order == [("checkpoint", 3), ("validation", 4), ("validation", 5), ("checkpoint", 5)]


def test_new_best_is_saved_at_once(folder: Path) -> None:
    """The first validation, at such a rate: none after it is better, and but for the end nothing else is saved."""
    changes = {"max_steps": 9, "validate_every": 2, "save_every": 100, "keep_last": 1, "keep_best": 1, "lr": 1e-30}
    assert nmt_train(write_config(folder, training=changes | {"early_stopping_metric": "loss"})) == 0
    assert [event["step"] for event in events(folder / "run", kinds=("validation",)) if event["new_best"]] == [2]
    assert [event["step"] for event in events(folder / "run", kinds=("checkpoint",))] == [2, 9]
    assert sorted(path.name for path in (folder / "run/checkpoints").glob("step-*")) == ["step-2", "step-9"]


def test_without_validation_text_there_is_a_checkpoint_an_epoch(folder: Path) -> None:
    changes = {"max_steps": 7, "batch_sentences": 50, "validate_every": None, "keep_last": 9}
    assert nmt_train(write_config(folder, data={"dev": None}, training=changes)) == 0
    assert [event["step"] for event in events(folder / "run") if event["event"] == "checkpoint"] == [3, 6, 7]
    assert not (folder / "run/checkpoints/best.json").exists()


def test_moving_average_is_what_is_saved(folder: Path) -> None:
    from safetensors.torch import load_file

    assert nmt_train(write_config(folder, training={"ema_decay": 0.9, "lr": 0.05})) == 0
    saved = load_file(folder / "run/checkpoints/step-12/model.safetensors")
    trained = training_state(folder / "run", 12)["updater"]["trained_weights"]
    assert saved.keys() == trained.keys()
    assert any(not torch.equal(saved[name], trained[name]) for name in saved)


def test_training_without_an_end_is_refused(folder: Path) -> None:
    config = load_config(write_config(folder, training={"max_steps": None}))
    with pytest.raises(ConfigError, match="max_steps, max_epochs or patience, or --max-minutes"):
        build_limits(config, budget=Budget())
    assert build_limits(config, budget=Budget(deadline=1.0)).budget.deadline == 1.0


def test_training_learns(folder: Path) -> None:
    """The target is a function of the source, word by word; the loss must fall well below the start."""
    model = {"dropout": 0.0, "hidden_size": 32, "embedding_size": 32, "init_range": 0.4}
    training = {"max_steps": 120, "lr": 0.01, "validate_every": 120, "label_smoothing": 0.0}
    assert nmt_train(write_config(folder, training=training, model=model)) == 0
    losses = [event["loss"] for event in events(folder / "run", kinds=("train",))]
    assert losses[-1] < 0.6 * losses[0]
