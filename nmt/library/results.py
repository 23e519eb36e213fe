"""What the library returns: plain values, without tensors, that can be pickled."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt.light.results import Hypothesis, Result

__all__ = ["Hypothesis", "PairScore", "Result"]


@dataclass(frozen=True)
class PairScore:
    """How probable the model finds a given translation."""

    score: float
    """Mean log-probability of the target's tokens in nats, the end symbol counted; at most 0, higher is better."""
    tokens: int
    """Tokens of the target, the end symbol counted."""
    unknown: int
    """Of these, tokens that the vocabulary lacks; the model's probability of an unknown word stands for them."""

    @property
    def mean_nll(self) -> float:
        """Mean negative log-probability, as nmt-score prints it."""
        return -self.score

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability; infinite where that overflows."""
        return math.exp(self.mean_nll) if not self.mean_nll >= 700 else math.inf
