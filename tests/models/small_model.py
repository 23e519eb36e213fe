"""Whole models of a few thousand weights, made without pydantic, and all that they compute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from nmt.models.base import Seq2Seq
from nmt.models.build import build_model

SOURCE = torch.tensor([[5, 7, 3, 9, 1], [4, 8, 1, 0, 0], [6, 6, 2, 1, 0]])
TARGET = torch.tensor([[4, 3, 1, 0], [7, 5, 9, 1], [8, 1, 0, 0]])
WORDS = 12

PAIRS = [
    *[("gru", "lstm"), ("lstm", "atr"), ("atr", "sru"), ("sru", "lrn"), ("lrn", "olrn")],
    *[("olrn", "ssru"), ("ssru", "min_lstm"), ("min_lstm", "min_gru"), ("min_gru", "gru")],
]
"""Units of encoder and decoder: each once in each."""
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "deepnmt": {"architecture": "deepnmt", "encoder_layers": 2},
    "plain": {"architecture": "deepnmt", "context_aware_encoder": False},
    "rnnsearch": {"architecture": "rnnsearch", "decoder_layers": 1, "attention_heads": 1},
    "transformer": {
        "architecture": "transformer",
        "embedding_size": 8,
        "architecture_options": {"heads": 2, "encoder_layers": 1, "decoder_layers": 2},
    },
}
"""Keys of models that have every kind of layer among them, for `make_model`."""


def make_model(cell: str, **options: Any) -> Seq2Seq:
    """A model in evaluation mode; `options` are keys of the section `model`."""
    torch.manual_seed(2)
    config: Any = SimpleNamespace(
        architecture="deepnmt", cell=cell, cell_options={}, encoder_cell=None, encoder_cell_options={},
        decoder_cell=None, decoder_cell_options={}, hidden_size=6, encoder_hidden_size=None, embedding_size=5,
        encoder_direction="both",
        encoder_layers=1, decoder_layers=2, context_aware_encoder=True, deep_attention=False, deep_output=True,
        attention_heads=2, layer_norm=False, tie_embeddings="target_softmax", dropout=0.0,
        recurrent_dropout=0.0, layer_norm_scale=1.0, initializer="uniform", initializer_options={}, init_range=0.8,
        architecture_options={},
    )  # fmt: skip
    config.__dict__.update(options)

    def unit_of(side: str) -> Any:
        name, given = getattr(config, f"{side}_cell") or cell, getattr(config, f"{side}_cell_options")
        return SimpleNamespace(name=name, options={**config.cell_options, **given} if name == cell else given)

    config.unit_of = unit_of
    return build_model(config, WORDS, WORDS).eval()


def everything(model: Seq2Seq) -> dict[str, Tensor]:
    """Logits, losses, and the gradients of a weighted loss with regard to all weights."""
    device = next(model.parameters()).device
    source, target = SOURCE.to(device), TARGET.to(device)
    weights = torch.rand(TARGET.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(device)
    model.zero_grad()
    loss, losses, nll = model.weighted_loss(source, target, weights=weights, label_smoothing=0.1)
    loss.backward()
    found = {f"d {name}": weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    with torch.no_grad():
        found["logits"] = model(source, target)[target != 0]
    return {"loss": loss.detach(), "losses": losses.detach(), "nll": nll.detach(), **found}
