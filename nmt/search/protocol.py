"""What a search needs of a model. Any model that has it can be searched."""

from __future__ import annotations

from typing import Protocol, TypeVar

from torch import Tensor

S = TypeVar("S", bound="SearchState")


class SearchState(Protocol):
    """What a model carries from step to step: rows of recurrent states, sentence-major, and B memories."""

    def expand(self: S, k: int, /) -> S:
        """Repeat the rows of each sentence k times."""

    def reorder(self: S, rows: Tensor, /) -> S:
        """Row i continues what row rows[i] was; every row stays with its sentence."""

    def keep(self: S, sentences: Tensor, /) -> S:
        """Drop all sentences but these."""


class SearchModel(Protocol[S]):
    """A conditional distribution over the next token, in two parts: of all rows, then of some sentences at a time.

    So the logits, far more than anything else in a step, never exist all at once.
    """

    @property
    def target_vocab_size(self) -> int:
        """V, how many logits there are."""

    def start(self, source: Tensor) -> S:
        """State before the first token of `source` [B, S], with one row for each sentence."""

    def features(self, tokens: Tensor | None, state: S) -> tuple[Tensor, S]:
        """What the logits are made of [N, E], after feeding `tokens` [N]; None feeds the zero vector, as before the
        first token."""

    def logits(self, features: Tensor, state: S, sentences: slice) -> Tensor:
        """Logits [n, V] of the n rows of some of the sentences, from the `features` of these rows and the state that
        came with them.

        The search may overwrite the logits.
        """
