"""The output layer as a search computes it: features to logits, over all words or a choice of them."""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor


class OutputLayer(Protocol):
    """From features to logits of V words."""

    def __call__(self, features: Tensor) -> Tensor:
        """features [N, E] -> logits [N, V]"""

    def select(self, words: Tensor) -> OutputLayer:
        """The same for the words [U] only."""


class PlainOutput:
    """Matrix product with the softmax table [V, E], which may be an Int8Matrix."""

    def __init__(self, table: Tensor) -> None:
        self._table = table

    def __call__(self, features: Tensor) -> Tensor:
        return F.linear(features, self._table)

    def select(self, words: Tensor) -> PlainOutput:
        return PlainOutput(self._table.index_select(0, words))
