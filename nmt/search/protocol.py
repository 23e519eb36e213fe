"""What a search needs of a model: a start, and the best words, or the logits, of a step."""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import Tensor

from nmt.ops.matrices.best_words import BestWords, Choice

S = TypeVar("S", bound="SearchState")


class SearchState(Protocol):
    """What a model carries from step to step: rows of recurrent states, sentence-major, and B memories."""

    def expand(self: S, k: int, /) -> S:
        """Repeat the rows of each sentence k times."""

    def reorder(self: S, rows: Tensor, /) -> S:
        """Row i continues the former row rows[i]; every row stays with its sentence."""

    def keep(self: S, sentences: Tensor, /) -> S:
        """Drop all sentences but these."""


class AttendingModel(Protocol[S]):
    """A model that also returns its attention; `Seq2Seq.tells_attention` tells whether it can."""

    def start(self, source: Tensor) -> S:
        """See `SearchModel`."""

    def attending_step(self, tokens: Tensor | None, state: S) -> tuple[Tensor, Tensor, S]:
        """Logits [N, V] after feeding `tokens` [N], or None for the zero vector, the attention [N, S], and the state.

        The attention is the one used to predict the next token: the mean over attentions and heads and, for an
        ensemble, over its members. It adds up to 1 over the S source positions.
        """


class SearchModel(Protocol[S]):
    """A conditional distribution over the next token."""

    def start(self, source: Tensor) -> S:
        """State before the first token of `source` [B, S], with one row for each sentence."""

    def best(self, tokens: Tensor | None, state: S, choice: Choice) -> tuple[BestWords, S]:
        """The best words after feeding `tokens` [N]; None feeds the zero vector, as before the first token.

        A model that computes logits [N, V] leaves the rest to `nmt.ops.matrices.best_words.best_words`.
        """

    def step(self, tokens: Tensor | None, state: S) -> tuple[Tensor, S]:
        """Logits [N, V] of all words instead, which may be log-probabilities."""
