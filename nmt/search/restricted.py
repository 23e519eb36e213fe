"""A model as the search sees it whose output layer has the words of a shortlist only."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from nmt.models.base import DecodingState, Seq2Seq
from nmt.models.output import OutputLayer
from nmt.ops.best import Best, Choice, best_words
from nmt.search.hypothesis import Hypothesis
from nmt.search.shortlist import BatchWords


class RestrictedState(NamedTuple):
    """The model's own state, and what is forbidden to each of its B sentences [B, U]."""

    inner: DecodingState
    forbidden: Tensor

    def expand(self, k: int) -> RestrictedState:
        """Each row k times, one below the other."""
        return self._replace(inner=self.inner.expand(k))

    def reorder(self, rows: Tensor) -> RestrictedState:
        """The rows [N'] in this order, each within its sentence."""
        return self._replace(inner=self.inner.reorder(rows))

    def keep(self, sentences: Tensor) -> RestrictedState:
        """Only the sentences [B']."""
        return RestrictedState(self.inner.keep(sentences), self.forbidden.index_select(0, sentences))


class RestrictedModel:
    """Start and best words of `model` for one batch, in places of `words.ids` instead of ids.

    The output layer is computed over the union of the sentences' lists; what is not in a sentence's
    own list has probability 0 there, so what a sentence gets does not depend on its companions.
    """

    def __init__(self, model: Seq2Seq, words: BatchWords, *, output: OutputLayer) -> None:
        """`output` is the output layer of the whole vocabulary."""
        self._model = model
        self._words = words
        self._output = output.select(words.ids)

    def start(self, source: Tensor) -> RestrictedState:
        """State before the first token of the batch's sentences [B, S]."""
        return RestrictedState(self._model.start(source), self._words.forbidden)

    def best(self, tokens: Tensor | None, state: RestrictedState, choice: Choice) -> tuple[Best, RestrictedState]:
        """The best words, places as well as the `tokens` [N] fed; None is the zero vector."""
        ids = None if tokens is None else self._words.ids[tokens]
        features, inner = self._model.features(ids, state.inner)
        logits = self._output(features)
        by_sentence = logits.view(len(state.forbidden), -1, logits.shape[1])
        by_sentence.masked_fill_(state.forbidden.unsqueeze(1), -math.inf)
        return best_words(logits, choice), state._replace(inner=inner)

    def with_ids(self, results: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """What a search found in places, in ids."""
        ids = self._words.ids.tolist()
        return [
            [Hypothesis([ids[place] for place in found.ids], found.score) for found in sentence] for sentence in results
        ]
