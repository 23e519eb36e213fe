"""Cross entropy with a sampled softmax: against the formula, against the whole vocabulary, in updates."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path

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
from nmt.optimization.losses import SampledCrossEntropy
from nmt.tasks.translation import build_batches
from nmt.training.batches import Position
from nmt.training.losses import CrossEntropy, cross_entropy
from nmt.training.run import build_updater
from nmt.training.task import task_of
from tests.tiny_training import events, nmt_train, write_config, write_corpus
from tests.training.whole_batch import whole_batch

SOURCE = torch.tensor([[3, 4, 5, 2, 0], [6, 7, 2, 0, 0], [3, 8, 4, 5, 2]])
TARGET = torch.tensor([[8, 3, 2, 0], [4, 2, 0, 0], [8, 6, 3, 2]])
OWN = [2, 3, 4, 6, 8]
SIZE = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path)
    return tmp_path


@pytest.fixture
def model() -> Seq2Seq:
    torch.manual_seed(2)
    settings = ModelConfig(cell="lrn", hidden_size=8, embedding_size=8, init_range=0.5, dropout=0.4)
    model = build_model(settings, SIZE, SIZE).double().train()
    number_layers(model)
    return model


def loss_of(samples: int) -> SampledCrossEntropy:
    return SampledCrossEntropy(label_smoothing=0.1, options=SampledCrossEntropy.Options(samples=samples))


def found_by(model: Seq2Seq, key: int, *, samples: int) -> Tensor:
    with masked_by(Masks(key)):
        return loss_of(samples)(whole_batch(model, SOURCE, TARGET)).total


def test_with_all_other_words_it_is_cross_entropy(model: Seq2Seq) -> None:
    found = []
    for loss in (
        loss_of(SIZE - len(OWN)),
        loss_of(1000),
        CrossEntropy(label_smoothing=0.1),
    ):
        with masked_by(Masks(7)):
            result = loss(whole_batch(model, SOURCE, TARGET))
        gradients = torch.autograd.grad(result.total, list(model.parameters()))
        found.append((result.total, result.nll.sum(), gradients))
    torch.testing.assert_close(found[0], found[2])
    torch.testing.assert_close(found[1], found[2])


def test_total_and_gradients_equal_the_formula(model: Seq2Seq) -> None:
    """Of the logits of the batch's words and of four others, which count for as many as there are."""
    with masked_by(Masks(5)):
        found = loss_of(4)(whole_batch(model, SOURCE, TARGET))
        others = torch.randperm(SIZE, generator=torch.Generator().manual_seed(5)).tolist()
        sample = [word for word in others if word not in OWN][:4]
        batch = whole_batch(model, SOURCE, TARGET)
        chosen = OWN + sample
        logits = batch.logits()[:, chosen]
    logits = logits + torch.tensor([0.0] * len(OWN) + [math.log((SIZE - len(OWN)) / 4)] * 4)
    words = torch.tensor([chosen.index(word) for word in batch.words.tolist()])
    wanted = (cross_entropy(logits, words, label_smoothing=0.1) * batch.word_weights).sum()
    torch.testing.assert_close(found.total, wanted)
    torch.testing.assert_close(found.nll, cross_entropy(logits, words).detach())
    weights = list(model.parameters())
    ours, theirs = (torch.autograd.grad(total, weights) for total in (found.total, wanted))
    torch.testing.assert_close(ours, theirs)


def test_the_mean_over_many_samples_is_near_cross_entropy(model: Seq2Seq) -> None:
    """As each word of a sample counts for all that it stands for."""
    model.eval()
    exact = CrossEntropy()(whole_batch(model, SOURCE, TARGET)).total
    loss = SampledCrossEntropy(options=SampledCrossEntropy.Options(samples=10))
    keys = range(200)
    totals = []
    for key in keys:
        with masked_by(Masks(key)):
            totals.append(loss(whole_batch(model, SOURCE, TARGET)).total.item())
    mean = sum(totals) / len(totals)
    assert max(totals) - min(totals) > 0.02
    assert mean == pytest.approx(exact.item(), abs=0.01)


def test_the_sample_is_that_of_the_batch(model: Seq2Seq) -> None:
    model.eval()  # no dropout, which is another with each key
    first = found_by(model, 1, samples=4)
    torch.manual_seed(9)
    assert found_by(model, 1, samples=4) == first
    assert found_by(model, 2, samples=4) != first
    losses = [loss_of(4)(whole_batch(model, SOURCE, TARGET)).total.item() for _ in range(2)]
    assert losses[0] != losses[1], "without masks torch's generator decides"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_updates_and_their_log(folder: Path, precision: str) -> None:
    training = {"loss": "sampled_cross_entropy", "loss_options": {"samples": 2}, "max_steps": 6, "precision": precision}
    config = write_config(folder, training={**training, "accumulate": 2}, evaluation={"metrics": []})
    assert nmt_train(config) == 0
    trained, validated = (events(folder / "run", kinds=(kind,))[-1] for kind in ("train", "validation"))
    assert trained["loss"] == pytest.approx(validated["loss"], rel=0.2)


def test_other_samples_give_other_weights_and_no_options_none(folder: Path) -> None:
    found = []
    for options in ({"samples": 1}, {"samples": 10_000}, {}):
        path = write_config(folder, training={"loss": "sampled_cross_entropy", "loss_options": options})
        config = load_config(path)
        data = prepare(config, folder / "run", progress=False)
        updater = build_updater(task_of(config), data.tokenizer, device=torch.device("cpu"))
        group = next(islice(build_batches(config, data.train).groups(Position(1, 0)), 1))
        found.append(updater.update(group, step=0).objective)
    assert found[0] != found[1] == found[2]
    with pytest.raises(ConfigError, match=r"training.loss_options.*samples: must be 1 or more, not 0"):
        load_config(write_config(folder, training={"loss": "sampled_cross_entropy", "loss_options": {"samples": 0}}))
