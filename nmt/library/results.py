"""Results of the library: plain values without tensors, which can be pickled."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt.light.results import Hypothesis, Result

__all__ = ["Hypothesis", "PairScore", "Result"]


@dataclass(frozen=True)
class PairScore:
    """The score of a given translation by the model."""

    score: float
    """Mean log-probability of the target's tokens in nats, end symbol included; at most 0, higher is better."""
    tokens: int
    """Tokens of the target, end symbol included."""
    unknown: int
    """How many of them are not in the vocabulary; they are scored as unknown words."""

    @property
    def mean_nll(self) -> float:
        """Mean negative log-probability, as nmt-score prints it."""
        return -self.score

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability; infinite on overflow."""
        return math.exp(self.mean_nll) if not self.mean_nll >= 700 else math.inf
