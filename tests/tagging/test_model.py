"""The architecture `tagger`: what it reads, and that neither padding nor neighbours in a batch change a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from nmt.config.schema import ModelConfig
from nmt.models import build_model
from nmt.models.parts import number_layers
from nmt.ops.dropout import Masks, masked_by
from nmt.tagging.model import FIRST_LABEL, Sentences, Tagger

WORDS, LABELS, LETTERS = 12, 7, 9


def tagger(*, cell: str = "lrn", bigrams: int = 0, **options: Any) -> Tagger:
    torch.manual_seed(2)
    config = ModelConfig(
        architecture="tagger",
        cell=cell,
        hidden_size=4,
        embedding_size=5,
        dropout=0.4,
        init_range=0.5,
        architecture_options={"character_size": 3, "character_hidden_size": 2, "bigram_size": 3, **options},
    )
    sizes = (WORDS, LABELS, 0 if bigrams else LETTERS, bigrams)
    model: Any = build_model(config, *sizes)
    assert (model.source_vocab_size, model.target_vocab_size) == sizes[:2]
    return model.double().eval()


def sentences() -> tuple[Sentences, torch.Tensor]:
    """Three of 4, 2 and 1 words, and their labels."""
    words = torch.tensor([[3, 4, 5, 6], [7, 3, 0, 0], [1, 0, 0, 0]])
    forms = torch.tensor([[1, 2, 3, 2], [4, 1, 0, 0], [2, 0, 0, 0]])
    letters = torch.tensor([[0, 0, 0], [3, 4, 5], [6, 0, 0], [3, 3, 0], [8, 7, 6]])
    labels = torch.tensor([[3, 4, 5, 6], [6, 3, 0, 0], [4, 0, 0, 0]])
    return Sentences(words, forms, letters), labels


def alone(whole: Sentences, row: int, length: int) -> Sentences:
    """One sentence without padding."""
    assert whole.forms is not None
    return Sentences(whole.words[row : row + 1, :length], whole.forms[row : row + 1, :length], whole.letters)


@pytest.mark.parametrize("cell", ["lrn", "atr", "lstm", "gru", "sru", "olrn"])
@pytest.mark.parametrize("crf", [True, False])
def test_a_sentence_does_not_depend_on_its_batch(cell: str, crf: bool) -> None:
    model, (whole, labels) = tagger(cell=cell, crf=crf, layers=2), sentences()
    losses, best = model.losses(whole, labels), model.best(whole)
    for row, length in enumerate((4, 2, 1)):
        own = alone(whole, row, length)
        torch.testing.assert_close(model.losses(own, labels[row : row + 1, :length])[0], losses[row])
        assert torch.equal(model.best(own)[0], best[row, :length])
    assert ((best >= FIRST_LABEL) == (whole.words != 0)).all()


def test_a_softmax_is_the_cross_entropy_of_each_label() -> None:
    model, (whole, labels) = tagger(crf=False), sentences()
    scores = model.scores(whole)
    expected = F.cross_entropy(scores.flatten(0, 1), (labels - FIRST_LABEL).clamp(min=0).flatten(), reduction="none")
    torch.testing.assert_close(model.losses(whole, labels), (expected.view(3, 4) * (labels != 0)).sum(1))


def test_all_parts_are_read_and_have_gradients() -> None:
    for bigrams in (0, 6):
        model, (whole, labels) = tagger(bigrams=bigrams), sentences()
        if bigrams:
            whole = Sentences(whole.words, bigrams=torch.tensor([[3, 4, 5, 2], [4, 2, 0, 0], [2, 0, 0, 0]]))
        assert (model.letters is None) == bool(bigrams) and (model.bigrams is None) != bool(bigrams)
        model.losses(whole, labels).sum().backward()
        for name, weight in model.named_parameters():
            assert weight.grad is not None and bool((weight.grad != 0).any()), name


def test_a_bigram_is_read_at_both_of_its_characters() -> None:
    model = tagger(bigrams=8).eval()
    read: list[torch.Tensor] = []
    model.input_dropout.register_forward_hook(lambda module, inputs, output: read.append(output))
    whole = Sentences(torch.tensor([[3, 4, 5]]), bigrams=torch.tensor([[6, 7, 2]]))
    model.scores(whole)
    assert model.bigrams is not None
    table = model.bigrams.weight
    torch.testing.assert_close(read[0][0, :, 5:8], table[[2, 6, 7]])
    torch.testing.assert_close(read[0][0, :, 8:], table[[6, 7, 2]])


def test_words_spelled_alike_are_read_once_and_the_same() -> None:
    model, (whole, _) = tagger(), sentences()
    assert model.letters is not None and whole.forms is not None and whole.letters is not None
    read = model.letters(whole.forms, whole.letters)
    assert torch.equal(read[0, 1], read[0, 3]) and torch.equal(read[0, 1], read[2, 0])
    own = model.letters(torch.tensor([[1]]), torch.tensor([[0], [6]]))
    torch.testing.assert_close(own[0, 0], read[0, 1])


def test_dropout_follows_from_the_place_in_the_batch() -> None:
    model, (whole, labels) = tagger(layers=2).train(), sentences()
    number_layers(model)
    with masked_by(Masks(5)):
        losses = model.losses(whole, labels)
    with masked_by(Masks(5, 1)):
        torch.testing.assert_close(model.losses(whole[1:], labels[1:]), losses[1:])
    with masked_by(Masks(6)):
        assert not torch.allclose(model.losses(whole, labels), losses)


def test_recurrent_dropout_is_of_the_layers_over_words_alone() -> None:
    config = ModelConfig(architecture="tagger", cell="lrn", hidden_size=4, embedding_size=5, recurrent_dropout=0.3)
    model: Any = build_model(config, WORDS, LABELS, LETTERS, 0)
    inside = set(model.letters.modules())
    assert {cell.recurrent_dropout for cell in model.cells if cell not in inside} == {0.3}
    assert {cell.recurrent_dropout for cell in model.cells if cell in inside} == {0.0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layers": 0}, "layers: must be 1"),
        ({"character_size": -1}, "character_size: must be 0"),
        ({"input_dropout": 1.0}, "input_dropout: must be at least 0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tagger(**options)
