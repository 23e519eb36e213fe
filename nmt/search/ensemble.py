"""Several models searched, and asked for scores, as one; by default by the mean of their probabilities, as in Zero."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.data import PAD
from nmt.errors import SettingError, counted
from nmt.models.base import Seq2Seq, drop_padding_columns
from nmt.models.parts import OutputWords
from nmt.ops.matrices.best_words import BestWords, Choice, best_words, log_probabilities
from nmt.search.shortlist import Restrictable

MeanOf = Literal["probabilities", "log_probabilities"]


class EnsembleMean(NamedTuple):
    """The mean of the distributions of K models."""

    weights: tuple[float, ...] | None = None
    """Weights of the models, in order, which add up to 1; None for equal weights."""
    of: MeanOf = "probabilities"
    """`log_probabilities`: the logarithms are averaged and the result normalised, the product of experts."""

    def attention(self, weights: Sequence[Tensor]) -> Tensor:
        """The mean [N, S] of what the models attend to, each [N, S]."""
        stacked = torch.stack(list(weights))
        if self.weights is None:
            return stacked.mean(0)
        return (stacked * stacked.new_tensor(self.weights)[:, None, None]).sum(0)


EQUAL = EnsembleMean()
"""The mean of the probabilities of models that count the same."""


class RunningMean:
    """The mean of log-probabilities that come model by model, of all words or of single ones."""

    def __init__(self, how: EnsembleMean) -> None:
        self._how = how
        self._total: Tensor | None = None
        self._count = 0

    def add(self, log_probs: Tensor) -> None:
        """One more model's."""
        weights, total = self._how.weights, self._total
        weight = None if weights is None else weights[self._count]
        self._count += 1
        if self._how.of == "log_probabilities":
            share = log_probs if weight is None else log_probs * weight
            self._total = share if total is None else total + share
            return
        share = log_probs if weight is None else log_probs + math.log(weight)
        self._total = share if total is None else torch.logaddexp(total, share)

    def result(self) -> Tensor:
        """Logarithms of the mean; for a mean of logarithms, all members must have been added."""
        total = self._total
        assert total is not None
        if self._how.of == "log_probabilities":
            if self._how.weights is None and self._count > 1:
                total = total / self._count
            return total if self._count == 1 else total.log_softmax(-1)
        return total if self._how.weights is not None or self._count == 1 else total.sub_(math.log(self._count))


def ensemble_mean(decoding: DecodingConfig, *, models: int) -> EnsembleMean:
    """The mean configured in the section `decoding`; ConfigError if it is for another number of models."""
    weights = decoding.ensemble_weights
    if weights is None:
        return EnsembleMean(None, decoding.ensemble_mean)
    if len(weights) != models:
        raise SettingError(("decoding.ensemble_weights", wrong_number(len(weights), models=models)))
    return EnsembleMean(tuple(weight / sum(weights) for weight in weights), decoding.ensemble_mean)


def wrong_number(weights: int, *, models: int) -> str:
    """The message about a wrong number of weights."""
    return f"{counted(weights, 'weight')} for {counted(models, 'model')}; give one for each"


_CELLS = 1 << 24
"""Most log-probabilities at a time: 64 MiB in fp32."""

M = TypeVar("M", bound=Restrictable[Any, OutputWords])


class EnsembleState(NamedTuple):
    """The states of all members, with the same hypotheses in the same rows."""

    members: tuple[Any, ...]

    def expand(self, k: int) -> EnsembleState:
        return EnsembleState(tuple(state.expand(k) for state in self.members))

    def reorder(self, rows: Tensor) -> EnsembleState:
        return EnsembleState(tuple(state.reorder(rows) for state in self.members))

    def keep(self, sentences: Tensor) -> EnsembleState:
        return EnsembleState(tuple(state.keep(sentences) for state in self.members))


class EnsembleWords(NamedTuple):
    """The same words in the output layer of each member."""

    members: tuple[OutputWords, ...]

    @property
    def ids(self) -> Tensor:
        """[U]"""
        return self.members[0].ids

    def keep(self, sentences: Tensor) -> EnsembleWords:
        return EnsembleWords(tuple(words.keep(sentences) for words in self.members))


class Ensemble:
    """K models over the same vocabularies, with the logits ln((1/K) sum_k softmax(logits_k)), or another mean.

    They run one after the other. Softmax and mean are computed in at least fp32 and with logarithms, so that very
    improbable words keep their order.
    """

    def __init__(self, members: Sequence[Restrictable[Any, OutputWords]], *, mean: EnsembleMean = EQUAL) -> None:
        self._members = tuple(members)
        self._mean = mean

    def start(self, source: Tensor) -> EnsembleState:
        """The state before the first word, one row for each sentence of source [B, S]."""
        return EnsembleState(tuple(member.start(source) for member in self._members))

    def among(self, ids: Tensor, forbidden: Tensor) -> EnsembleWords:
        """The words `ids` [U]; `forbidden` [B, U] marks those that a sentence must not use."""
        return EnsembleWords(tuple(member.among(ids, forbidden) for member in self._members))

    def step(
        self, tokens: Tensor | None, state: EnsembleState, words: EnsembleWords | None = None
    ) -> tuple[Tensor, EnsembleState]:
        """Log-probabilities [N, V] of the next word after `tokens` [N], the last words of the N rows of `state`.

        Among U `words` [N, U], and tokens are places in them. None in place of the tokens is the zero vector.
        """
        mean, states = RunningMean(self._mean), []
        for member, before, own in self._each(state, words):
            logits, after = member.step(tokens, before, own)
            states.append(after)
            mean.add(log_probabilities(logits))
        return mean.result(), EnsembleState(tuple(states))

    def attending_step(
        self, tokens: Tensor | None, state: EnsembleState, words: EnsembleWords | None = None
    ) -> tuple[Tensor, Tensor, EnsembleState]:
        """As `step`, between log-probabilities and state the mean of the members' attention [N, S]."""
        mean, states, attention = RunningMean(self._mean), [], []
        for member, before, own in self._each(state, words):
            logits, weights, after = member.attending_step(tokens, before, own)
            states.append(after)
            attention.append(weights)
            mean.add(log_probabilities(logits))
        return mean.result(), self._mean.attention(attention), EnsembleState(tuple(states))

    def _each(
        self, state: EnsembleState, words: EnsembleWords | None
    ) -> Iterator[tuple[Restrictable[Any, OutputWords], Any, OutputWords | None]]:
        """Each member, its state and its words."""
        owned: Sequence[OutputWords | None] = [None] * len(self._members) if words is None else words.members
        return zip(self._members, state.members, owned, strict=True)

    def best(
        self, tokens: Tensor | None, state: EnsembleState, choice: Choice, words: EnsembleWords | None = None
    ) -> tuple[BestWords, EnsembleState]:
        """As `step`, but what `choice` asks for; always by the members' probabilities, scores wanted or not."""
        logits, state = self.step(tokens, state, words)
        return best_words(logits, choice), state


def as_one(members: Sequence[M], *, mean: EnsembleMean = EQUAL) -> M | Ensemble:
    """What to search with `members`: the only one there is, or their ensemble."""
    return members[0] if len(members) == 1 else Ensemble(members, mean=mean)


@torch.no_grad()
def mean_nll(models: Sequence[Seq2Seq], source: Tensor, target: Tensor, *, mean: EnsembleMean = EQUAL) -> Tensor:
    """Mean negative log-probability [B] that the ensemble gives the words of each target; lower is better.

    source [B, S], target [B, T]. Takes no more memory than the model that takes most, and for a mean of
    log-probabilities a few times _CELLS numbers.
    """
    words = drop_padding_columns(target) != PAD  # [B, T']
    if mean.of == "log_probabilities" and len(models) > 1:
        log_probs = _all_words(models, source, target, mean=mean)
    else:
        total = RunningMean(mean)
        for model in models:
            total.add(-model.token_losses(source, target))
        log_probs = total.result()
    return -log_probs.masked_fill(~words, 0.0).sum(1) / words.sum(1).clamp(min=1)


def _all_words(models: Sequence[Seq2Seq], source: Tensor, target: Tensor, *, mean: EnsembleMean) -> Tensor:
    """Log-probabilities [B, T'] of the target words by a mean that has to be normalised, some sentences at a time."""
    target = drop_padding_columns(target)
    sentences = max(1, _CELLS // (target.shape[1] * models[0].target_vocab_size))
    found = []
    for start in range(0, len(target), sentences):
        rows = slice(start, start + sentences)
        total = RunningMean(mean)
        for model in models:
            logits = model(source[rows], target[rows])  # [b, T'', V]
            total.add(log_probabilities(logits))
        log_probs = total.result()
        words = target[rows, : log_probs.shape[1]]
        picked = log_probs.gather(2, words.unsqueeze(2)).squeeze(2)
        found.append(F.pad(picked, (0, target.shape[1] - picked.shape[1])))
    return torch.cat(found)
