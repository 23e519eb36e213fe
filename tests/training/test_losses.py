"""Losses of plugins: what they are given, that they are normalised as the default one, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import load_config
from nmt.data.prepare import prepare
from nmt.errors import ConfigError
from nmt.models import build_model
from nmt.ops.dropout import Masks, masked_by
from nmt.registry import LOSSES
from nmt.tasks.translation import build_batches
from nmt.training.batches import Position
from nmt.training.distributed import Share
from nmt.training.losses import BatchLoss, CrossEntropy, Loss, TrainingBatch, cross_entropy
from nmt.training.run import build_updater
from nmt.training.task import task_of
from nmt.training.update import Updater
from tests.own_components import registries_restored, write_example
from tests.tiny_training import events, nmt_train, write_config, write_corpus
from tests.training.whole_batch import whole_batch

CPU = torch.device("cpu")


class Plain(Loss):
    """The default loss, from logits."""

    smooths = True

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        logits = batch.logits()
        return batch.weighted(cross_entropy(logits, batch.words, label_smoothing=self.label_smoothing), logits=logits)


class Consistent(Plain):
    """Cross entropy, and how far two passes with their own dropout are apart (R-Drop)."""

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        first, second = batch.logits(), batch.logits()
        apart = (first.log_softmax(-1) - second.log_softmax(-1)).abs().sum(-1)
        return batch.weighted(cross_entropy(first, batch.words) + apart, logits=first)


class WholeSentences(Loss):
    """Zero but for the sentence weights."""

    normalizations = ("sentence",)

    def __call__(self, batch: TrainingBatch) -> BatchLoss:
        features = batch.features()
        nothing = 0 * features.sum()
        return BatchLoss(batch.sentence_weights.sum() + nothing, torch.zeros(1))


@pytest.fixture(autouse=True)
def losses() -> Iterator[None]:
    with registries_restored():
        for name, loss in (("plain", Plain), ("consistent", Consistent), ("whole_sentences", WholeSentences)):
            LOSSES.register(name)(loss)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def updaters(folder: Path, *overrides: str, **changes: Any) -> tuple[Updater, Any]:
    config = load_config(write_config(folder, **changes), overrides)
    data = prepare(config, folder / "run", progress=False)
    return build_updater(task_of(config), data.tokenizer, device=CPU), (config, data.train)


@pytest.mark.parametrize("normalization", ["token", "sentence"])
def test_the_same_loss_from_logits_gives_the_same_updates(folder: Path, normalization: str) -> None:
    """Over several batches an update, and with dropout."""
    training = {"accumulate": 2, "normalization": normalization, "clip_norm": 0.0}
    found = []
    for name in ("cross_entropy", "plain"):
        updater, (config, corpus) = updaters(folder, f"training.loss={name}", training=training)
        done = []
        for step, group in enumerate(islice(build_batches(config, corpus).groups(Position(1, 0)), 3)):
            done.append(updater.update(group, step=step))
        found.append([(update.objective, update.nll, update.grad_norm) for update in done])
    assert found[1] == [pytest.approx(values, rel=1e-4) for values in found[0]]


def test_parts_of_two_processes_add_up_to_the_whole(folder: Path) -> None:
    """A total that is a sum over words, over sentences or over the update."""
    updater, (config, corpus) = updaters(folder, "training.loss=plain", training={"batch_sentences": 9})
    for normalization, loss in (("token", Plain()), ("sentence", Plain()), ("sentence", WholeSentences())):
        object.__setattr__(updater.objective, "loss", loss)
        object.__setattr__(updater.objective, "normalization", normalization)
        (whole,) = islice(build_batches(config, corpus).groups(Position(1, 0)), 1)
        total = updater._backward(whole)
        gradient = updater.model.embeddings.source.grad.clone()
        updater.model.zero_grad()
        parts = torch.zeros(2, dtype=torch.float64)
        for rank in range(2):
            stream = build_batches(config, corpus)
            stream.share = Share(rank, 2)
            (mine,) = islice(stream.groups(Position(1, 0)), 1)
            parts += updater._backward(mine)
        torch.testing.assert_close(parts, total, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(updater.model.embeddings.source.grad, gradient, rtol=1e-4, atol=1e-6)
        updater.model.zero_grad()
    assert total[0] == pytest.approx(1)  # the weights of all sentences


def small(dropout: float = 0.0) -> tuple[Any, Tensor, Tensor]:
    from nmt.config.schema import ModelConfig

    torch.manual_seed(3)
    model = build_model(ModelConfig(cell="gru", hidden_size=8, embedding_size=6, dropout=dropout), 15, 17)
    source = torch.randint(3, 15, (3, 5))
    target = torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0], [8, 9, 2, 0]])
    return model, source, target


def test_what_a_loss_is_given() -> None:
    model, source, target = small()
    batch = whole_batch(model, source, target, normalization="sentence")
    assert batch.words.tolist() == [4, 5, 6, 2, 7, 2, 8, 9, 2]
    assert batch.sentences.tolist() == [0] * 4 + [1] * 2 + [2] * 3
    torch.testing.assert_close(batch.sentence_weights, torch.full((3,), 1 / 3, dtype=torch.float64))
    wanted = model(source, target)[target != 0]
    torch.testing.assert_close(batch.logits(), wanted)
    found = CrossEntropy(label_smoothing=0.1)(batch)
    torch.testing.assert_close(found.total, model.loss(source, target, label_smoothing=0.1, normalization="sentence"))
    plain = Plain(label_smoothing=0.1)(batch)
    torch.testing.assert_close(plain.total, found.total)
    torch.testing.assert_close(plain.nll, found.nll)


def test_each_pass_has_dropout_of_its_own_and_the_first_that_of_the_default_loss() -> None:
    model, source, target = small(dropout=0.5)
    with masked_by(Masks(17)):
        batch = whole_batch(model, source, target)
        first, second, third = batch.logits(), batch.logits(), batch.logits()
        again = whole_batch(model, source, target)
        assert torch.equal(again.logits(), first) and torch.equal(again.logits(), second)
        assert not torch.equal(first, second) and not torch.equal(second, third)
        plain, usual, twice = (
            loss(whole_batch(model, source, target)).total
            for loss in (Plain(), CrossEntropy(), LOSSES.get("consistent")())
        )
        torch.testing.assert_close(plain, usual)
        assert twice > usual


def test_the_log_shows_cross_entropy_and_the_objective(folder: Path) -> None:
    """The example of the guide trains, with its option; validation measures what it always does."""
    training = {"loss": "focal", "loss_options": {"gamma": 1.0}, "label_smoothing": 0.0, "max_steps": 3}
    config = write_config(folder, training=training, evaluation={"metrics": []})
    assert nmt_train(config, "--plugin", str(write_example(folder, "focal"))) == 0
    trained, validated = (events(folder / "run", kinds=(kind,))[0] for kind in ("train", "validation"))
    assert 0 < trained["objective"] < trained["loss"]
    assert trained["loss"] == pytest.approx(validated["loss"], rel=0.3)


def test_what_a_loss_cannot_do_is_refused_by_name(folder: Path) -> None:
    training = {"loss": "whole_sentences", "label_smoothing": 0.1, "loss_options": {"gamma": 1}}
    with pytest.raises(ConfigError) as error:
        load_config(write_config(folder, training=training))
    said = str(error.value)
    assert (
        "training.label_smoothing: 0.1 is not possible: the loss 'whole_sentences' does not smooth; set it to 0" in said
    )
    assert "training.normalization: 'token' is not possible with the loss 'whole_sentences'. Allowed: sentence." in said
    assert "training.loss_options.gamma: unknown key." in said
    with pytest.raises(
        ConfigError, match="training.loss: 'cross-entropy' is not a known loss. Did you mean 'cross_entr"
    ):
        load_config(write_config(folder, training={"loss": "cross-entropy", "loss_options": {}}))
