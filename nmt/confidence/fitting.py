"""Fits the estimate of confidence by logistic regression, and measures how good such estimates are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.confidence.rating import Letters, Usual
from nmt.errors import DataError, counted

Numbers = NDArray[np.float64]

FEWEST = 10
"""Translations that must be on each side of the bar."""
BINS = 10
FOLDS = 5
NOTED = 0.0025
"""The share of the lines of the development text that are noted as unlike training."""
_RIDGE = 1e-3
_STEPS = 100


class Logistic(NamedTuple):
    """p = 1 / (1 + exp(-(intercept + weights x)))"""

    intercept: float
    weights: Numbers  # [F]

    def of(self, values: Numbers) -> Numbers:
        """The probability of each row of values [N, F]."""
        total = self.intercept + values @ self.weights
        return np.asarray(1 / (1 + np.exp(-np.clip(total, -500, 500))))


def fitted(values: Numbers, good: NDArray[np.bool_]) -> Logistic:
    """Logistic regression by Newton's method, with a small penalty on the weights of standardised features.

    values [N, F], good [N]. A feature that does not vary gets the weight 0.
    """
    mean, scale = values.mean(0), values.std(0)
    scale = np.where(scale > 1e-9, scale, np.inf)
    rows = np.hstack([np.ones((len(values), 1)), (values - mean) / scale])  # [N, 1 + F]
    penalty = _RIDGE * np.diag([0.0, *np.ones(values.shape[1])])
    weights = np.zeros(rows.shape[1])
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(rows @ weights, -500, 500)))
        gradient = rows.T @ (p - good) / len(rows) + penalty @ weights
        curvature = (rows.T * (p * (1 - p))) @ rows / len(rows) + penalty + 1e-9 * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    own = weights[1:] / scale
    return Logistic(float(weights[0] - own @ mean), own)


def crossed(values: Numbers, good: NDArray[np.bool_]) -> Numbers:
    """For each row the probability by a fit to the rows of the other FOLDS - 1 parts; every FOLDS-th row is a part."""
    found = np.empty(len(values))
    for part in range(FOLDS):
        mine = np.arange(len(values)) % FOLDS == part
        found[mine] = fitted(values[~mine], good[~mine]).of(values[mine])
    return found


class Bin(NamedTuple):
    """The estimates from one number to another."""

    first: float
    last: float
    lines: int
    mean: float
    """Of the estimates."""
    share: float
    """Of what was good."""


def bins(estimates: Numbers, good: NDArray[np.bool_]) -> list[Bin]:
    """Estimates in BINS of equal width; empty ones are left out."""
    own = np.minimum((estimates * BINS).astype(int), BINS - 1)
    found = []
    for place in range(BINS):
        if (mine := own == place).any():
            share = float(good[mine].mean())
            found.append(Bin(place / BINS, (place + 1) / BINS, int(mine.sum()), float(estimates[mine].mean()), share))
    return found


def calibration_error(estimates: Numbers, good: NDArray[np.bool_]) -> float:
    """ECE, the expected calibration error: the mean over all of |mean estimate - share of what is good| in their bin
    (Naeini et al., AAAI 2015)."""
    return sum(one.lines * abs(one.mean - one.share) for one in bins(estimates, good)) / len(estimates)


def area(high: Sequence[float] | Numbers, low: Sequence[float] | Numbers) -> float | None:
    """AUC: the probability that one of `high` is above one of `low`, equal ones counted half; None without either."""
    if not len(high) or not len(low):
        return None
    high, low = np.asarray(high, dtype=np.float64), np.sort(np.asarray(low, dtype=np.float64))
    below = np.searchsorted(low, high, side="left") + np.searchsorted(low, high, side="right")
    return float(below.mean() / 2 / len(low))


def check_bar(scores: Numbers, bar: float) -> None:
    """Raise DataError unless some scores are on each side of `bar`."""
    good = int((scores >= bar).sum())
    if min(good, len(scores) - good) >= FEWEST:
        return
    other = math.floor(min(100.0, float(np.percentile(scores, 20))))
    above = int((scores >= other).sum())
    hint = f", such as {other}" if min(above, len(scores) - above) >= FEWEST else ""
    raise DataError(
        f"{good:,} of {counted(len(scores), 'translation')} have a chrF of {bar:g} or more; at least {FEWEST} must "
        f"have it and {FEWEST} not: give another --at-least{hint}, or more text"
    )


def usual_of(counts: dict[str, int], lines: Sequence[str]) -> Usual | None:
    """What is usual: the share NOTED of `lines`, the development text, is below. None if no line has letters."""
    letters = Letters(counts)
    scores = [letters.score(line) for line in lines]
    count = sum(number for _, number in scores)
    if not count:
        return None
    usual = Usual(letters, math.fsum(total for total, _ in scores) / count, least=-math.inf)
    own: list[Any] = [value for value in map(usual.of, lines) if value is not None]
    return usual._replace(least=float(np.quantile(own, NOTED)))
