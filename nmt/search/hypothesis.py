"""A translation in ids with its score, and the length penalty that makes scores of unequal lengths comparable."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.data.vocabulary import EOS, PAD

FIRST_EOS_PENALTY = 1e8
"""Taken from the log-probability of the end symbol at the first step, so that nothing starts by ending (Zero)."""


@dataclass(frozen=True)
class Hypothesis:
    """Token ids, without the end symbol, and the log-probability divided by the length penalty."""

    ids: list[int]
    score: float
    has_ended: bool = True
    """Whether the end symbol was found; else the limit of its length has cut it."""
    is_finite: bool = True
    """Whether all its probabilities are numbers above 0; else there is no translation, and the ids mean nothing."""


def penalty_of(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha with `length` in tokens, the end symbol included (Wu et al., 2016)."""
    return float(((5.0 + length) / 6.0) ** alpha)


def cut(ids: list[int]) -> list[int]:
    """The ids before the first end or padding symbol."""
    for position, token in enumerate(ids):
        if token in (EOS, PAD):
            return ids[:position]
    return ids
