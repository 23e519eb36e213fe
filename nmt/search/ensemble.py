"""Several models searched, and asked for scores, as one: the mean of their probabilities, as Zero's ensemble mode."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from nmt.data import PAD
from nmt.models.base import Seq2Seq, drop_padding_columns
from nmt.models.output import OutputWords
from nmt.ops.matrices.best_words import BestWords, Choice, best_words
from nmt.ops.matrices.top import log_probabilities
from nmt.search.protocol import SearchState

S = TypeVar("S", bound=SearchState)
M = TypeVar("M", bound="Member[Any]")


class Member(Protocol[S]):
    """What an ensemble needs of each of its models."""

    def start(self, source: Tensor) -> S:
        """See `nmt.search.protocol.SearchModel`."""

    def among(self, ids: Tensor, forbidden: Tensor) -> OutputWords:
        """See `nmt.search.restricted.Restrictable`."""

    def step(self, tokens: Tensor | None, state: S, words: OutputWords | None = None) -> tuple[Tensor, S]:
        """Logits [N, V] after feeding `tokens` [N], or None for the zero vector; among U `words` theirs [N, U]."""

    def attending_step(
        self, tokens: Tensor | None, state: S, words: OutputWords | None = None
    ) -> tuple[Tensor, Tensor, S]:
        """As `step`, with the attention [N, S]."""


class EnsembleState(NamedTuple):
    """The states of all members, row by row those of the same hypotheses."""

    members: tuple[Any, ...]

    def expand(self, k: int) -> EnsembleState:
        """Each row k times, one below the other."""
        return EnsembleState(tuple(state.expand(k) for state in self.members))

    def reorder(self, rows: Tensor) -> EnsembleState:
        """The rows [N'] in this order, each within its sentence."""
        return EnsembleState(tuple(state.reorder(rows) for state in self.members))

    def keep(self, sentences: Tensor) -> EnsembleState:
        """Only the sentences [B']."""
        return EnsembleState(tuple(state.keep(sentences) for state in self.members))


class EnsembleWords(NamedTuple):
    """The same words in the output layer of each member."""

    members: tuple[OutputWords, ...]

    @property
    def ids(self) -> Tensor:
        """[U]"""
        return self.members[0].ids

    def keep(self, sentences: Tensor) -> EnsembleWords:
        """Only the sentences [B']."""
        return EnsembleWords(tuple(words.keep(sentences) for words in self.members))


class Ensemble:
    """K models over the same vocabularies, with the logits ln((1/K) sum_k softmax(logits_k)).

    They run one after the other. Softmax and mean are computed in at least fp32, and by logarithms: what all members
    find all but impossible still has its order.
    """

    def __init__(self, members: Sequence[Member[Any]]) -> None:
        self._members = tuple(members)

    def start(self, source: Tensor) -> EnsembleState:
        """The state before the first word, one row for each sentence of source [B, S]."""
        return EnsembleState(tuple(member.start(source) for member in self._members))

    def among(self, ids: Tensor, forbidden: Tensor) -> EnsembleWords:
        """The words `ids` [U], of which `forbidden` [B, U] are not the sentences'."""
        return EnsembleWords(tuple(member.among(ids, forbidden) for member in self._members))

    def step(
        self, tokens: Tensor | None, state: EnsembleState, words: EnsembleWords | None = None
    ) -> tuple[Tensor, EnsembleState]:
        """Log-probabilities [N, V] of the next word after `tokens` [N], the last words of the N rows of `state`.

        Among U `words` [N, U], and tokens are places in them. None in place of the tokens is the zero vector.
        """
        total: Tensor | None = None
        states = []
        for member, before, own in self._each(state, words):
            logits, after = member.step(tokens, before, own)
            states.append(after)
            total = _added(total, log_probabilities(logits))
        return _mean(total, count=len(self._members)), EnsembleState(tuple(states))

    def attending_step(
        self, tokens: Tensor | None, state: EnsembleState, words: EnsembleWords | None = None
    ) -> tuple[Tensor, Tensor, EnsembleState]:
        """As `step`, between log-probabilities and state the mean of the members' attention [N, S]."""
        total: Tensor | None = None
        states, attention = [], []
        for member, before, own in self._each(state, words):
            logits, weights, after = member.attending_step(tokens, before, own)
            states.append(after)
            attention.append(weights)
            total = _added(total, log_probabilities(logits))
        mean = torch.stack(attention).mean(0)
        return _mean(total, count=len(self._members)), mean, EnsembleState(tuple(states))

    def _each(
        self, state: EnsembleState, words: EnsembleWords | None
    ) -> Iterator[tuple[Member[Any], Any, OutputWords | None]]:
        """Each member, its state and its words."""
        owned: Sequence[OutputWords | None] = [None] * len(self._members) if words is None else words.members
        return zip(self._members, state.members, owned, strict=True)

    def best(
        self, tokens: Tensor | None, state: EnsembleState, choice: Choice, words: EnsembleWords | None = None
    ) -> tuple[BestWords, EnsembleState]:
        """As `step`, but what `choice` asks for; always by the members' probabilities, scores wanted or not."""
        logits, state = self.step(tokens, state, words)
        return best_words(logits, choice), state


def as_one(members: Sequence[M]) -> M | Ensemble:
    """What to search with `members`: the only one there is, or their ensemble."""
    return members[0] if len(members) == 1 else Ensemble(members)


@torch.no_grad()
def mean_nll(models: Sequence[Seq2Seq], source: Tensor, target: Tensor) -> Tensor:
    """Mean negative log-probability [B] that the ensemble gives the words of each target; lower is better.

    source [B, S], target [B, T]. Takes no more memory than the model that takes most.
    """
    total: Tensor | None = None
    for model in models:
        total = _added(total, -model.token_losses(source, target))
    words = drop_padding_columns(target) != PAD  # [B, T']
    log_probs = _mean(total, count=len(models)).masked_fill(~words, 0.0)
    return -log_probs.sum(1) / words.sum(1).clamp(min=1)


def _added(total: Tensor | None, log_probs: Tensor) -> Tensor:
    """The logarithm of the sum of probabilities so far, with those of one more model."""
    return log_probs if total is None else torch.logaddexp(total, log_probs)


def _mean(total: Tensor | None, *, count: int) -> Tensor:
    assert total is not None
    return total if count == 1 else total.sub_(math.log(count))
