"""The architecture `classifier`: equations, and that neither padding nor neighbours in a batch change a text."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nmt.classification.model import FIRST_LABEL, Aligned, Classifier, Pooling, Texts, WordByWord
from nmt.config import load_config
from nmt.config.schema import ModelConfig
from nmt.models import build_model
from nmt.models.encoder import EncoderOutput
from nmt.models.parts import initialize, number_layers
from nmt.ops.dropout import Masks, masked_by

WORDS = 12
LABELS = ["yes", "no", "perhaps"]
ATTENTIONS = ("word_by_word", "aligned", None)


def classifier(*, cell: str = "lrn", attention: str | None = "word_by_word", **options: Any) -> Classifier:
    torch.manual_seed(2)
    config = ModelConfig(
        architecture="classifier",
        cell=cell,
        hidden_size=4,
        embedding_size=5,
        dropout=0.4,
        init_range=0.5,
        architecture_options={"labels": LABELS, "attention": attention, **options},
    )
    model: Any = build_model(config, WORDS, WORDS)
    assert (model.source_vocab_size, model.target_vocab_size) == (WORDS, WORDS)
    return model.double().eval()


def texts(attention: str | None = "word_by_word") -> tuple[Texts, torch.Tensor]:
    """Three, of pairs the longest first text beside the shortest second one, and their labels."""
    first = torch.tensor([[3, 4, 5, 6, 2], [7, 3, 2, 0, 0], [2, 0, 0, 0, 0]])
    second = torch.tensor([[2, 0, 0, 0], [8, 9, 2, 0], [1, 4, 3, 2]])
    return Texts(first, None if attention is None else second), torch.tensor([[1], [3], [2]])


def alone(whole: Texts, row: int) -> Texts:
    """One text, or pair, without padding."""
    parts = [part[row : row + 1] for part in (whole.first, whole.second) if part is not None]
    return Texts(*(part[:, : int((part != 0).sum())] for part in parts))


@pytest.mark.parametrize("cell", ["lrn", "atr", "lstm", "gru", "sru", "olrn"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_text_does_not_depend_on_its_batch(cell: str, attention: str | None) -> None:
    model, (whole, labels) = classifier(cell=cell, attention=attention), texts(attention)
    scores, losses = model.scores(whole), model.token_losses(whole, labels)
    assert scores.shape == (3, 3) and losses.shape == (3, 1)
    for row in range(3):
        torch.testing.assert_close(model.scores(alone(whole, row))[0], scores[row])
    torch.testing.assert_close(model.probabilities(whole).sum(1), torch.ones(3).double())
    expected = F.cross_entropy(scores, labels[:, 0] - FIRST_LABEL, reduction="none")
    torch.testing.assert_close(losses[:, 0], expected)


@pytest.mark.parametrize("pooling", ["attention", "max", "mean", "last"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_all_parts_have_gradients_and_padding_has_no_effect(attention: str | None, pooling: str) -> None:
    model, (whole, labels) = classifier(attention=attention, pooling=pooling, layers=2), texts(attention)
    scores = model.scores(whole)
    for row in range(3):
        torch.testing.assert_close(model.scores(alone(whole, row))[0], scores[row])
    F.cross_entropy(scores, labels[:, 0] - FIRST_LABEL).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and bool((weight.grad != 0).any()), name
    assert not model.words.weight.grad[0].any(), "of padding"  # type: ignore[index]


@pytest.mark.parametrize("attention", ["word_by_word", "aligned"])
def test_each_text_is_compared_with_the_other(attention: str) -> None:
    model, (whole, _) = classifier(attention=attention), texts()
    assert whole.second is not None
    scores = model.scores(whole)
    first, second = whole.first.clone(), whole.second.clone()
    first[1, 0], second[1, 0] = 9, 3
    assert not torch.allclose(model.scores(Texts(first, whole.second))[1], scores[1])
    assert not torch.allclose(model.scores(Texts(whole.first, second))[1], scores[1])


def test_word_by_word_is_its_equations() -> None:
    """One step of both cells after the other."""
    model = classifier(cell="gru")
    part = model.comparison
    assert isinstance(part, WordByWord)
    torch.manual_seed(3)
    x, z = torch.randn(1, 4, 5).double(), torch.randn(1, 3, 5).double()
    masks = [torch.ones(1, 4).bool(), torch.ones(1, 3).bool()]
    y, found = part([x, z], masks)
    read, last = part.first(x, masks[0])
    torch.testing.assert_close(y, read)
    attention, lower, higher = part.second.attention, part.second.lower, part.second.higher
    h = torch.tanh(part.initial.maps[0](last))
    for t in range(3):
        s = lower.step(lower.project(z[:, t]), lower.unpack_state(h)).h
        queries = attention.query(s) + attention.memory(y)[0]
        a = (torch.tanh(queries) @ attention.score_weight).softmax(0)
        c = (a[:, None] * y[0]).sum(0, keepdim=True)
        h = higher.step(higher.project(c), lower.unpack_state(s)).h
        torch.testing.assert_close(found[:, t], h, rtol=1e-6, atol=1e-6)


def test_aligned_is_its_equations() -> None:
    model = classifier(attention="aligned")
    part = model.comparison
    assert isinstance(part, Aligned)
    torch.manual_seed(3)
    x, z = torch.randn(1, 4, 5).double(), torch.randn(1, 3, 5).double()
    masks = [torch.ones(1, 4).bool(), torch.ones(1, 3).bool()]
    a, b = part.both(x, masks[0]).outputs[0], part.both(z, masks[1]).outputs[0]
    found = part([x, z], masks)
    e = a @ b.T
    for own, other, weights, output in ((a, b, e.softmax(1), found[0]), (b, a, e.T.softmax(1), found[1])):
        like = weights @ other
        joined = torch.cat([own, like, own - like, own * like], 1)
        torch.testing.assert_close(output[0], F.relu(part.compare(joined)))


def test_pooling_is_its_equations() -> None:
    torch.manual_seed(1)
    x, last = torch.randn(2, 3, 4), torch.randn(2, 4)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    read = EncoderOutput(x, last)

    def pooled(kind: Any) -> torch.Tensor:
        module = Pooling(kind, 4, hidden_size=3)
        initialize(module, 0.5)
        return module(read, mask)

    torch.testing.assert_close(pooled("max"), torch.stack([x[0].amax(0), x[1, 0]]))
    torch.testing.assert_close(pooled("mean"), torch.stack([x[0].mean(0), x[1, 0]]))
    assert torch.equal(pooled("last"), last)
    module = Pooling("attention", 4, hidden_size=3)
    initialize(module, 0.5)
    weights = (torch.tanh(x[0] @ module.inner.weights[0].T) @ module.score.weights[0][0]).softmax(0)
    torch.testing.assert_close(module(read, mask), torch.stack([weights @ x[0], x[1, 0]]))


@pytest.mark.parametrize(
    ("cell", "millions"), [("lstm", 8.36), ("gru", 6.41), ("atr", 2.87), ("sru", 5.48), ("lrn", 4.25)]
)
def test_shipped_models_have_the_published_number_of_parameters(cell: str, millions: float) -> None:
    """Zhang and Sennrich (ACL 2019): without tables, with 64 numbers that are made of the characters of each word."""
    section = load_config(f"snli_{cell}.yaml").model
    words = dataclasses.replace(section, embedding_size=section.embedding_size + 64)
    with torch.device("meta"):
        model = build_model(words, WORDS, WORDS)
    count = sum(parameter.numel() for name, parameter in model.named_parameters() if name != "words.weight")
    assert count / 1e6 == pytest.approx(millions, abs=0.03)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_dropout_follows_from_the_place_in_the_batch(attention: str | None) -> None:
    model, (whole, _) = classifier(attention=attention, layers=2).train(), texts(attention)
    number_layers(model)
    with masked_by(Masks(5)):
        scores = model.scores(whole)
    with masked_by(Masks(5, 1)):
        torch.testing.assert_close(model.scores(whole[1:]), scores[1:])
    with masked_by(Masks(6)):
        assert not torch.allclose(model.scores(whole), scores)


def test_both_texts_have_masks_of_their_own() -> None:
    model = classifier(attention="aligned").train()
    number_layers(model)
    read: list[torch.Tensor] = []
    for module in model.input_dropouts:
        module.register_forward_hook(lambda module, inputs, output: read.append(output == 0))
    same = torch.tensor([[3, 4, 5, 2]])
    with masked_by(Masks(5)):
        model.scores(Texts(same, same))
    assert not torch.equal(*read)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layers": 0}, "layers: must be from 1"),
        ({"upper_layers": 0}, "upper_layers: must be from 1"),
        ({"input_dropout": 1.0}, "input_dropout: must be at least 0"),
        ({"labels": ["a", "b", "a"]}, "labels: each label may be given once, not a, b, a"),
        ({"labels": ["a", " b"]}, "labels: a label must not be empty"),
        ({"labels": ["a", ""]}, "labels: a label must not be empty"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        classifier(**options)
