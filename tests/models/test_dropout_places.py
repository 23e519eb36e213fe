"""Dropout inside of whole models: masks follow from a sentence's place in its batch, and no two layers share them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.cells import Cell
from nmt.config.schema import ModelConfig
from nmt.models import build_model
from nmt.models.base import Seq2Seq
from nmt.models.parts import Dropout, number_layers
from nmt.ops import native
from nmt.ops.dispatch import selected
from nmt.ops.dropout import Draw, Masks, batch_key, masked_by

MODELS: list[dict[str, Any]] = [
    {"architecture": "rnnsearch", "cell": "lrn"},
    {"architecture": "rnnsearch", "cell": "gru", "context_aware_encoder": False},
    {"architecture": "deepnmt", "cell": "sru", "encoder_layers": 2, "decoder_layers": 2, "deep_output": True},
    {"architecture": "rnnsearch_deepatt", "cell": "gru", "encoder_layers": 2, "decoder_layers": 2},
    {"architecture": "transformer", "cell": "lrn", "architecture_options": {"word_dropout": 0.2}},
    {
        "architecture": "transformer",
        "architecture_options": {
            "encoder_mixing": "attention",
            "decoder_mixing": "attention",
            "attention_dropout": 0.3,
            "word_dropout": 0.2,
        },
    },
]
SOURCE = torch.tensor([[3, 4, 5, 2, 0], [6, 7, 2, 0, 0], [8, 2, 0, 0, 0], [3, 8, 4, 5, 2], [7, 2, 0, 0, 0]])
TARGET = torch.tensor([[8, 3, 2, 0], [4, 2, 0, 0], [5, 6, 7, 2], [4, 4, 2, 0], [2, 0, 0, 0]])


def build(settings: dict[str, Any], *, recurrent: float = 0.3) -> Seq2Seq:
    torch.manual_seed(2)
    sizes: dict[str, Any] = {"hidden_size": 8, "embedding_size": 8, "init_range": 0.5}
    sizes |= {"layer_norm": False, "dropout": 0.4, "recurrent_dropout": recurrent}
    model = build_model(ModelConfig(**{**sizes, **settings}), 9, 9).train()
    number_layers(model)
    return model


def gradients(model: Seq2Seq, source: Tensor, target: Tensor, masks: Masks) -> tuple[Tensor, list[Tensor]]:
    """The sum of the losses of all words, and its gradients."""
    with masked_by(masks):
        weights = (target != 0).to(next(model.parameters()).dtype)
        loss, *_ = model.weighted_loss(source, target, weights=weights, label_smoothing=0.1)
        return loss, list(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))


@pytest.mark.parametrize("settings", MODELS)
def test_the_parts_of_a_batch_add_up_to_the_whole(settings: dict[str, Any]) -> None:
    """Also where a part has less padding, and whatever state torch's generator is in."""
    model, key = build(settings).double(), batch_key(1, 1, 4)
    loss, whole = gradients(model, SOURCE, TARGET, Masks(key))
    again, _ = gradients(model, torch.nn.functional.pad(SOURCE, (0, 2)), TARGET, Masks(key))
    assert again.item() == pytest.approx(loss.item(), rel=1e-12)
    for cuts in ((0, 2, 5), (0, 1, 3, 4, 5)):
        total, sums = 0.0, [torch.zeros_like(gradient) for gradient in whole]
        for first, end in zip(cuts, cuts[1:], strict=False):
            source, target = SOURCE[first:end], TARGET[first:end]
            source, target = source[:, (source != 0).any(0)], target[:, (target != 0).any(0)]
            part, found = gradients(model, source, target, Masks(key, first))
            total += part.item()
            sums = [sum_ + gradient for sum_, gradient in zip(sums, found, strict=True)]
        assert total == pytest.approx(loss.item(), rel=1e-12)
        for ours, right in zip(sums, whole, strict=True):
            torch.testing.assert_close(ours, right, rtol=1e-10, atol=1e-12)
    wrong, _ = gradients(model, SOURCE[2:], TARGET[2:], Masks(key))
    right, _ = gradients(model, SOURCE[2:], TARGET[2:], Masks(key, 2))
    assert abs(wrong.item() - right.item()) > 1e-3, "this model's dropout does not matter"


@pytest.mark.parametrize("settings", MODELS)
def test_each_layer_draws_once_by_a_number_of_its_own(settings: dict[str, Any], monkeypatch: Any) -> None:
    model, drawn = build(settings), []
    original = Masks.draw

    def noted(self: Masks, x: Tensor, *, layer: int, position: int = 0) -> Draw:
        drawn.append(layer)
        return original(self, x, layer=layer, position=position)

    monkeypatch.setattr(Masks, "draw", noted)
    gradients(model, SOURCE, TARGET, Masks(1))
    layers = [module for module in model.modules() if isinstance(module, (Dropout, Cell))]
    assert sorted(layer.layer_number for layer in layers) == list(range(1, len(layers) + 1))
    idle = [layer.layer_number for layer in layers if isinstance(layer, Dropout) and not layer.p]
    assert sorted(drawn + idle) == list(range(1, len(layers) + 1))


@pytest.mark.skipif(native.problem() is not None, reason="there are no native kernels here")
@pytest.mark.parametrize("recurrent", [0.0, 0.3])
def test_kernels_drop_what_the_plain_code_drops(recurrent: float) -> None:
    model = build(MODELS[0], recurrent=recurrent)
    found = []
    for choice in ("auto", "reference"):
        with selected(choice):
            found.append(gradients(model, SOURCE, TARGET, Masks(5)))
    (loss, ours), (wanted, right) = found
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    torch.testing.assert_close(ours, right, rtol=1e-3, atol=1e-5)
