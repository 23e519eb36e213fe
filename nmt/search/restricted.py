"""A model as the search sees it whose output layer has the words of a shortlist only."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from torch import Tensor

from nmt.ops.matrices.best_words import BestWords, Choice
from nmt.search.hypothesis import Hypothesis
from nmt.search.protocol import SearchState
from nmt.search.shortlist import BatchWords

S = TypeVar("S", bound=SearchState)
W = TypeVar("W", bound="ListedWords")


class ListedWords(Protocol):
    """A subset of the words of an output layer, different for each of B sentences; a search uses their places as
    ids."""

    @property
    def ids(self) -> Tensor:
        """[U]"""

    def keep(self: W, sentences: Tensor, /) -> W:
        """Only the sentences [B']."""


class Restrictable(Protocol[S, W]):
    """A model whose output layer can be restricted."""

    def start(self, source: Tensor) -> S:
        """See `SearchModel`."""

    def among(self, ids: Tensor, forbidden: Tensor) -> W:
        """The words `ids` [U], ascending, of which `forbidden` [B, U] are not the sentences'; more can be added."""

    def best(self, tokens: Tensor | None, state: S, choice: Choice, words: W) -> tuple[BestWords, S]:
        """As in `SearchModel`, among `words` and by their places."""

    def attending_step(self, tokens: Tensor | None, state: S, words: W) -> tuple[Tensor, Tensor, S]:
        """As in `AttendingModel`, among `words` and by their places."""

    def step(self, tokens: Tensor | None, state: S, words: W) -> tuple[Tensor, S]:
        """As in `SearchModel`, among `words` and by their places."""


@dataclass(frozen=True)
class RestrictedState(Generic[S, W]):
    """The model's own state, and what its sentences may choose from."""

    inner: S
    words: W

    def expand(self, k: int) -> RestrictedState[S, W]:
        """Each row k times, one below the other."""
        return RestrictedState(self.inner.expand(k), self.words)

    def reorder(self, rows: Tensor) -> RestrictedState[S, W]:
        """The rows [N'] in this order, each within its sentence."""
        return RestrictedState(self.inner.reorder(rows), self.words)

    def keep(self, sentences: Tensor) -> RestrictedState[S, W]:
        """Only the sentences [B']."""
        return RestrictedState(self.inner.keep(sentences), self.words.keep(sentences))


class RestrictedModel(Generic[S, W]):
    """Start and best words of `model` for one batch, in places of words instead of ids.

    The output layer is computed over the union of the sentences' lists; what is not in a sentence's
    own list has probability 0 there, so what a sentence gets does not depend on its companions.
    """

    def __init__(self, model: Restrictable[S, W], words: BatchWords) -> None:
        self._model = model
        self._words = model.among(words.ids, words.forbidden)

    def start(self, source: Tensor) -> RestrictedState[S, W]:
        """State before the first token of the batch's sentences [B, S]."""
        return RestrictedState(self._model.start(source), self._words)

    def best(
        self, tokens: Tensor | None, state: RestrictedState[S, W], choice: Choice
    ) -> tuple[BestWords, RestrictedState[S, W]]:
        """The best words, places as well as the `tokens` [N] fed; None is the zero vector."""
        found, inner = self._model.best(tokens, state.inner, choice, state.words)
        return found, RestrictedState(inner, state.words)

    def attending_step(
        self, tokens: Tensor | None, state: RestrictedState[S, W]
    ) -> tuple[Tensor, Tensor, RestrictedState[S, W]]:
        """As in `AttendingModel`: logits [N, U] of the places; `tokens` [N] are places, too."""
        logits, weights, inner = self._model.attending_step(tokens, state.inner, state.words)
        return logits, weights, RestrictedState(inner, state.words)

    def step(self, tokens: Tensor | None, state: RestrictedState[S, W]) -> tuple[Tensor, RestrictedState[S, W]]:
        """Logits of all places, after feeding the places `tokens` [N]; None is the zero vector."""
        logits, inner = self._model.step(tokens, state.inner, state.words)
        return logits, RestrictedState(inner, state.words)

    @property
    def ids(self) -> Tensor:
        """Ids of the places."""
        return self._words.ids

    def with_ids(self, results: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """What a search found in places, in ids."""
        ids = self._words.ids.tolist()
        return [
            [dataclasses.replace(found, ids=[ids[place] for place in found.ids]) for found in sentence]
            for sentence in results
        ]
