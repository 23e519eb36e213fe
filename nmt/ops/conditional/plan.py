"""What a loop over two cells is made of, and what it reads.

Letters: B sentences, T time steps, P parts of the state, H channels, k and k' products of the lower and the higher
cell, M = G * D width of the memory in G heads, S source positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Plan(NamedTuple):
    """What a loop is made of: with the shapes and types of its tensors, all that its work depends on."""

    lower: str
    """Name and options in words, see `nmt.ops.unit.Unit.words`"""
    higher: str
    counts: tuple[int, ...]
    """How many weights lower and higher cell, context and query have; the last two have none without attention"""
    widths: tuple[int, ...]
    """Parts in which the input product of the higher cell is normalised"""

    def cut(self, weights: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """The weights of lower and higher cell, context and query, from all in one row."""
        ends = [sum(self.counts[: i + 1]) for i in range(len(self.counts))]
        return [weights[end - count : end] for end, count in zip(ends, self.counts, strict=True)]


class Given(NamedTuple):
    """What a loop, or a part of it, reads besides its weights."""

    x: Tensor
    """[B, T, kH]"""
    mask: Tensor | None
    """[B, T] bytes"""
    first: Tensor
    """The state before, fp32 [P, B, H]"""
    aligned: Tensor | None
    """[B, T, k'H], the inputs of the higher cell if they do not come from attention, to which the rest belongs"""
    keys: Tensor | None = None
    """[B, G, S, D], doubled"""
    values: Tensor | None = None
    """[B, G, S, D]"""
    penalty: Tensor | None = None
    """fp32 [B, S]"""
    score_weight: Tensor | None = None
    """fp32 [D]"""
    multiplied: Tensor | None = None
    """[B, 1, S, k'H], where the product with the memory is not in the loop: see `nmt.ops.conditional.memory`"""

    def part(self, start: int, end: int, *, first: Tensor) -> Given:
        """The time steps from `start` to before `end`, with the state before them."""
        mask, aligned = (None if x is None else x[:, start:end] for x in (self.mask, self.aligned))
        return self._replace(x=self.x[:, start:end], mask=mask, first=first, aligned=aligned)
