"""The output layer as a search computes it: features to logits, over all words or a choice of them."""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from nmt.models.attention import product_type


class OutputLayer(Protocol):
    """From features to logits of V words."""

    def __call__(self, features: Tensor) -> Tensor:
        """features [N, E] -> logits [N, V]"""

    def select(self, words: Tensor) -> OutputLayer:
        """The same for the words [U] only."""


class PlainOutput:
    """Matrix product with the softmax table [V, E], in the type that autocast asks for."""

    def __init__(self, table: Tensor) -> None:
        self._table = table

    def __call__(self, features: Tensor) -> Tensor:
        return F.linear(features, self._table)

    def select(self, words: Tensor) -> PlainOutput:
        # Cast here: autocast remembers the cast of a parameter, but not of what is chosen from it.
        return PlainOutput(self._table.index_select(0, words).to(product_type(self._table)))
