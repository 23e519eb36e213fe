"""How the distributions of several models become one: which mean, and whose word counts how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from nmt.config.schema import DecodingConfig
from nmt.errors import SettingError, counted

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
