"""A model without a network: logits are rows of a table, chosen by source and history.

It has the interface of a real model, so that searches are tested by themselves, and a
plain `next_logits(source, history)` that oracles use.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nmt.ops.matrices.best_words import BestWords, Choice, best_words

PAD, UNK, EOS = 0, 1, 2


class TableState(NamedTuple):
    """`key` [B] stands for the encoder memory (one for each sentence), `history` [N] for the recurrent state."""

    key: Tensor
    history: Tensor

    def expand(self, k: int) -> TableState:
        return TableState(self.key, self.history.repeat_interleave(k))

    def reorder(self, rows: Tensor) -> TableState:
        return TableState(self.key, self.history[rows])

    def keep(self, sentences: Tensor) -> TableState:
        beams = len(self.history) // len(self.key)
        return TableState(self.key[sentences], self.history.view(-1, beams)[sentences].flatten())


class TableModel:
    """Any wrong row in expand, reorder or keep changes the logits: they hang on the whole history."""

    def __init__(
        self, seed: int, *, vocabulary: int, eos: float = 0.0, spread: float = 2.0, dtype: torch.dtype = torch.float64
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.entries = 1009
        self.vocabulary = vocabulary
        self.table = torch.randn(self.entries, vocabulary, generator=generator, dtype=torch.float64) * spread
        self.table[:, EOS] += eos
        self.table = self.table.to(dtype)
        self.steps = 0

    def start(self, source: Tensor) -> TableState:
        places = torch.arange(1, source.shape[1] + 1)
        key = (source * places * 7919).sum(dim=1) % self.entries
        return TableState(key, torch.zeros_like(key))

    def step(self, tokens: Tensor | None, state: TableState) -> tuple[Tensor, TableState]:
        self.steps += len(state.history)
        fed = torch.full_like(state.history, self.vocabulary) if tokens is None else tokens
        history = (state.history * 31 + fed + 1) % self.entries
        beams = len(history) // len(state.key)
        return self.table[(state.key.repeat_interleave(beams) + history) % self.entries], state._replace(
            history=history
        )

    def best(self, tokens: Tensor | None, state: TableState, choice: Choice) -> tuple[BestWords, TableState]:
        logits, state = self.step(tokens, state)
        return best_words(logits, choice), state

    def next_logits(self, source: list[int], history: list[int | None]) -> Tensor:
        """Logits [V] after feeding `history`, which begins with None (the zero vector)."""
        state = self.start(torch.tensor([source]))
        for token in history:
            logits, state = self.step(None if token is None else torch.tensor([token]), state)
        return logits[0]


def random_sources(seed: int, *, sentences: int, longest: int, vocabulary: int) -> Tensor:
    """Sentences of 1 (only EOS) to `longest` tokens, padded, with a column of padding to spare."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (sentences,), generator=generator)
    source = torch.randint(3, vocabulary, (sentences, longest + 1), generator=generator)
    places = torch.arange(longest + 1).unsqueeze(0)
    source[places >= lengths.unsqueeze(1)] = PAD
    source[places == lengths.unsqueeze(1) - 1] = EOS
    return source
