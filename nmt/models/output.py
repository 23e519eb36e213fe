"""The output layer over a choice of the words, as a shortlist leaves it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from nmt.ops.matrices.best_words import BestWords, Choice, best_words


class OutputWords(NamedTuple):
    """U words, of which each of B sentences has its own; a search calls them by their places."""

    ids: Tensor
    """[U]"""
    table: Tensor
    """[U, E], their rows of the softmax table, which may be an Int8Matrix"""
    forbidden: Tensor
    """[B, U], true where a word is not the sentence's"""

    def keep(self, sentences: Tensor) -> OutputWords:
        """Only the sentences [B']."""
        return self._replace(forbidden=self.forbidden.index_select(0, sentences))

    def logits(self, features: Tensor) -> Tensor:
        """Of features [B * K, E], [B * K, U]; what is forbidden has probability 0."""
        logits = F.linear(features, self.table)
        by_sentence = logits.view(len(self.forbidden), -1, logits.shape[1])
        by_sentence.masked_fill_(self.forbidden.unsqueeze(1), -math.inf)
        return logits

    def best(self, features: Tensor, choice: Choice) -> BestWords:
        """The best places of features [B * K, E]."""
        return best_words(self.logits(features), choice)
