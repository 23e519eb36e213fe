"""The part of a block that mixes the words of one side: a recurrent unit or self-attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt.models.conditional import MakeCell
from nmt.models.encoder import Bidirectional
from nmt.models.linear import Linear
from nmt.models.transformer.heads import KeptWords, SelfAttention
from nmt.ops.recurrence import product_type


class Mixing(nn.Module):
    """From normalised words of the target to what is added to them; each word sees those up to itself."""

    state_size: int
    """P, the width of the packed state before the first word."""

    def unpack_state(self, packed: Tensor) -> Any:
        """The state of N rows from packed [N, P]."""
        raise NotImplementedError

    def sequence(self, x: Tensor, state: Any, mask: Tensor) -> Tensor:
        """x [B, T, size] from a state; mask [B, T] is true at words."""
        raise NotImplementedError

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The next word x [N, size] of N rows, and the state after it."""
        raise NotImplementedError


class UnitMixing(Mixing):
    """A recurrent unit and a linear map of what it puts out."""

    def __init__(self, make_cell: MakeCell, size: int) -> None:
        super().__init__()
        self.cell = make_cell(size)
        self.out = Linear([self.cell.hidden_size], size)
        self.state_size = self.cell.state_size

    def unpack_state(self, packed: Tensor) -> Any:
        return self.cell.unpack_state(packed)

    def sequence(self, x: Tensor, state: Any, mask: Tensor) -> Tensor:
        outputs, _ = self.cell.for_batch(x).layer(x, state, mask)
        return self.out(outputs)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        state = self.cell.search_step(self.cell.project(x), state)
        return self.out(self.cell.output(state)), state


class AttentionMixing(Mixing):
    """Self-attention, which keeps keys and values of all words so far."""

    state_size = 0

    def __init__(self, size: int, *, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(size, heads=heads, dropout=dropout)
        self.head_size = size // heads

    def unpack_state(self, packed: Tensor) -> KeptWords:
        shape = len(packed), self.attention.attention.heads, 0, self.head_size
        none = torch.empty(shape, dtype=product_type(packed), device=packed.device)
        return KeptWords(none, none)

    def sequence(self, x: Tensor, state: Any, mask: Tensor) -> Tensor:
        return self.attention(x, None)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.attention.step(x, state)


class BothWays(nn.Module):
    """A recurrent unit in both directions over the source, and a linear map of what they put out."""

    def __init__(self, make_cell: MakeCell, size: int) -> None:
        super().__init__()
        self.rnn = Bidirectional(make_cell, size)
        self.out = Linear([self.rnn.output_size], size)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x [B, S, size], mask [B, S]."""
        return self.out(self.rnn(x, mask).outputs)
