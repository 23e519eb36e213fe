"""A table model that also attends: weights over the source chosen by the history, as its logits are."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.ops.matrices.best_words import log_probabilities
from tests.search.table_model import PAD, TableModel, TableState


class AttendingTable(TableModel):
    """Padding is attended to as well, so that a sum over it would be noticed."""

    def __init__(self, seed: int, *, vocabulary: int, eos: float = 0.0, dtype: torch.dtype = torch.float64) -> None:
        super().__init__(seed, vocabulary=vocabulary, eos=eos, dtype=dtype)
        generator = torch.Generator().manual_seed(seed + 1)
        self.weights = (torch.randn(self.entries, 16, generator=generator, dtype=torch.float64) * 3).softmax(1)
        self.weights = (self.weights / self.weights[:, :4].sum(1, keepdim=True)).to(dtype)
        self.columns = 0

    def start(self, source: Tensor) -> TableState:
        self.columns = int((source != PAD).any(0).sum())  # as a model that drops columns of padding alone
        return super().start(source)

    def attending_step(self, tokens: Tensor | None, state: TableState) -> tuple[Tensor, Tensor, TableState]:
        logits, state = self.step(tokens, state)
        beams = len(state.history) // len(state.key)
        places = (state.key.repeat_interleave(beams) + 7 * state.history) % self.entries
        return log_probabilities(logits), self.weights[places, : self.columns], state

    def next_weights(self, source: list[int], history: list[int | None]) -> Tensor:
        """Attention [S] of the step after `history`, which begins with None."""
        state = self.start(torch.tensor([source]))
        for token in history:
            _, weights, state = self.attending_step(None if token is None else torch.tensor([token]), state)
        return weights[0]
