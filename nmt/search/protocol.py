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
        """Row i continues what row rows[i] was; every row stays with its sentence."""

    def keep(self: S, sentences: Tensor, /) -> S:
        """Drop all sentences but these."""


class AttendingModel(Protocol[S]):
    """A model that also tells what it attends to; whether it can is `Seq2Seq.tells_attention`."""

    def start(self, source: Tensor) -> S:
        """See `SearchModel`."""

    def attending_step(self, tokens: Tensor | None, state: S) -> tuple[Tensor, Tensor, S]:
        """Logits [N, V] after feeding `tokens` [N], or None for the zero vector, the attention [N, S], and the state.

        The attention is that with which the next token is predicted: the mean over attentions and heads, of an
        ensemble that over its members. It adds up to 1 over the S source positions.
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
