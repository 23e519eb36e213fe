"""The sums of nmt-score over a text or a corpus."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from nmt.data.text import NotedLines

BATCH_TOKENS = 4096
"""Tokens per batch if neither option nor configuration gives a number: the logits of a batch are in memory at once."""


@dataclass
class Sums:
    """Sums of log-probabilities; problem lines are noted by their numbers, from 1."""

    tokens: int = 0
    unknown: int = 0
    nll: float = 0.0
    scores: list[float] = field(default_factory=list)
    """Kept for --json only."""
    not_finite: NotedLines = field(default_factory=NotedLines)

    @property
    def mean_nll(self) -> float:
        """Nats per token."""
        return self.nll / self.tokens if self.tokens else math.nan

    @property
    def perplexity(self) -> float:
        """exp of the mean; infinite where that overflows."""
        return math.exp(self.mean_nll) if not self.mean_nll >= 700 else math.inf

    def described(self) -> str:
        """Perplexity and mean, for people."""
        return f"perplexity {self.perplexity:.4f}, {self.mean_nll:.6f} nats per token"

    def described_unknown(self) -> str:
        """The share of unknown tokens, worded as the end of a sentence; empty if there are none."""
        return f", {self.unknown / self.tokens:.2%} are not in the vocabulary" if self.unknown else ""

    def record(self, **counts: int) -> dict[str, Any]:
        """All totals and the other counts, for programs; NaN and infinity, which JSON lacks, are null."""
        return {
            "perplexity": _finite(self.perplexity),
            "mean_nll": _finite(self.mean_nll),
            **counts,
            "tokens": self.tokens,
            "unknown": self.unknown,
            "scores": [_finite(score) for score in self.scores],
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
