"""R-Drop: two passes in one, against the formula on the logits of each; in updates, in parts and in the log."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config import load_config
from nmt.config.schema import ModelConfig
from nmt.data.prepare import prepare
from nmt.errors import ConfigError
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.models.parts import number_layers
from nmt.ops.dropout import Masks, masked_by
from nmt.optimization.losses import RDrop
from nmt.tasks.translation import build_batches
from nmt.training.batches import Position
from nmt.training.losses import TrainingBatch, cross_entropy
from nmt.training.run import build_updater
from nmt.training.task import task_of
from tests.tiny_training import events, nmt_train, write_config, write_corpus
from tests.training.whole_batch import whole_batch

SOURCE = torch.tensor([[3, 4, 5, 2, 0], [6, 7, 2, 0, 0], [3, 8, 4, 5, 2]])
TARGET = torch.tensor([[8, 3, 2, 0], [4, 2, 0, 0], [5, 6, 7, 2]])
KEY, SECOND_PASS = 12345, 2**24
MODELS: list[dict[str, Any]] = [
    {"architecture": "rnnsearch", "cell": "gru", "recurrent_dropout": 0.3},
    {"architecture": "deepnmt", "cell": "lrn", "encoder_layers": 2, "decoder_layers": 2},
    {"architecture": "transformer", "cell": "lrn", "architecture_options": {"word_dropout": 0.2}},
    {
        "architecture": "transformer",
        "architecture_options": {
            "encoder_mixing": "attention",
            "decoder_mixing": "attention",
            "attention_dropout": 0.3,
        },
    },
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


def build(settings: dict[str, Any]) -> Seq2Seq:
    torch.manual_seed(2)
    sizes: dict[str, Any] = {"hidden_size": 8, "embedding_size": 8, "init_range": 0.5, "dropout": 0.4}
    model = build_model(ModelConfig(**{**sizes, **settings}), 9, 9).double().train()
    number_layers(model)
    return model


def naive(first: Tensor, second: Tensor, batch: TrainingBatch, *, alpha: float, label_smoothing: float) -> Tensor:
    """The total, of the logits [N, V] of both passes."""
    entropies = [cross_entropy(logits, batch.words, label_smoothing=label_smoothing) for logits in (first, second)]
    p, q = first.softmax(-1), second.softmax(-1)
    divergence = ((p - q) * (p.log() - q.log())).sum(-1)  # KL(p || q) + KL(q || p)
    return ((sum(entropies) / 2 + alpha / 4 * divergence) * batch.word_weights).sum()


@pytest.mark.parametrize("settings", MODELS)
def test_total_and_gradients_equal_the_formula_on_two_passes(settings: dict[str, Any]) -> None:
    """The second of which is a pass over a batch whose sentences have the numbers of the second pass."""
    model = build(settings)
    loss = RDrop(label_smoothing=0.1, options=RDrop.Options(alpha=2.0))
    with masked_by(Masks(KEY, 4)):
        found = loss(whole_batch(model, SOURCE, TARGET))
    logits = []
    for first in (4, 4 + SECOND_PASS):
        with masked_by(Masks(KEY, first)):
            logits.append(whole_batch(model, SOURCE, TARGET).logits())
    batch = whole_batch(model, SOURCE, TARGET)
    wanted = naive(*logits, batch, alpha=2.0, label_smoothing=0.1)
    assert found.total.item() == pytest.approx(wanted.item(), rel=1e-10)
    nll = sum(cross_entropy(values, batch.words) for values in logits) / 2
    torch.testing.assert_close(found.nll, nll.detach(), rtol=1e-10, atol=1e-12)
    weights = list(model.parameters())
    ours, theirs = (torch.autograd.grad(total, weights, materialize_grads=True) for total in (found.total, wanted))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    without = naive(*logits, batch, alpha=0.0, label_smoothing=0.1)
    assert wanted - without > 1e-3, "the passes hardly differ"


def test_passes_after_others_have_masks_of_their_own() -> None:
    model = build(MODELS[1])
    with masked_by(Masks(KEY)):
        batch = whole_batch(model, SOURCE, TARGET)
        first, second, third = batch.features(), batch.passes(2), batch.passes(2)
        again = whole_batch(model, SOURCE, TARGET)
        torch.testing.assert_close(again.passes(2)[0], first)
    passes = [first, *second, *third]
    assert all(not torch.allclose(a, b) for number, a in enumerate(passes) for b in passes[:number])


def test_passes_are_made_without_masks_too() -> None:
    model = build(MODELS[1])
    first, second = whole_batch(model, SOURCE, TARGET).passes(2)
    assert not torch.allclose(first, second)
    first, second = whole_batch(model.eval(), SOURCE, TARGET).passes(2)
    torch.testing.assert_close(first, second)


def test_without_dropout_updates_are_those_of_cross_entropy(folder: Path) -> None:
    found = []
    for name in ("cross_entropy", "r_drop"):
        path = write_config(folder, training={"loss": name, "accumulate": 2}, model={"dropout": 0.0})
        config = load_config(path)
        data = prepare(config, folder / "run", progress=False)
        updater = build_updater(task_of(config), data.tokenizer, device=torch.device("cpu"))
        groups = islice(build_batches(config, data.train).groups(Position(1, 0)), 3)
        done = [updater.update(group, step=step) for step, group in enumerate(groups)]
        found.append([(update.objective, update.nll, update.grad_norm) for update in done])
    assert found[1] == [pytest.approx(values, rel=1e-4) for values in found[0]]


def test_the_log_has_cross_entropy_and_what_is_minimised(folder: Path) -> None:
    training = {"loss": "r_drop", "loss_options": {"alpha": 8.0}, "label_smoothing": 0.0, "max_steps": 6}
    model = {"dropout": 0.5, "init_range": 0.5}
    config = write_config(folder, training=training, model=model, evaluation={"metrics": []})
    assert nmt_train(config) == 0
    trained, validated = (events(folder / "run", kinds=(kind,))[-1] for kind in ("train", "validation"))
    assert trained["objective"] > trained["loss"] + 0.01
    assert trained["loss"] == pytest.approx(validated["loss"], rel=0.2)


def test_what_is_wrong_or_odd_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"training.loss_options.*alpha: must be 0 or more, not -1"):
        load_config(write_config(folder, training={"loss": "r_drop", "loss_options": {"alpha": -1.0}}))
    config = write_config(folder, training={"loss": "r_drop", "max_steps": 1}, model={"dropout": 0.0})
    assert nmt_train(config, "--dry-run") == 0
    assert "training.loss: 'r_drop' compares two passes with different dropout, but model.dropout is 0" in (
        capsys.readouterr().err
    )
