"""Whether the output of a model has to do with its source, or is no better than chance."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from nmt.evaluation import Metric
from nmt.registry import DOUBTS
from nmt.training.validation import Chance

SHUFFLES = 8
LINES_FOR_CHANCE = 99
"""Of more, so many spread evenly tell a model that has learned something from chance; with 100 sacreBLEU would complain
of tokenised text at each shuffle."""
SURE = 4.0
"""Standard deviations of the shuffled scores of translations: of 20 lines by chance 3 % have a BLEU that is better."""


@DOUBTS.register("by_chance")
def chance_of(
    name: str,
    score: Callable[[Sequence[int]], float],
    *,
    lines: int,
    higher_is_better: bool = True,
    points: bool = True,
    sure: float = SURE,
) -> Chance:
    """Compare outputs of at least two lines with chance.

    `score` gives the score beside the references of each line of the output whose place is listed in their order.
    `points`: the metric has a scale of 100, so that a difference below 1 is none; of others it is a tenth.
    `sure`: the standard deviations of the shuffled scores that are luck.
    """
    draw, others = random.Random(0), []
    for _ in range(SHUFFLES):
        order = draw.sample(range(lines), lines)
        beside = dict(zip(order, [*order[1:], order[0]], strict=True))  # a single cycle: no line keeps its place
        others.append(score([beside[line] for line in range(lines)]))
    mean = statistics.fmean(others)
    gain = (score(range(lines)) - mean) * (1 if higher_is_better else -1)
    return Chance(name, mean, gain > max(1.0 if points else abs(mean) / 10, sure * statistics.stdev(others)))


@DOUBTS.register("translated_by_chance")
def chance_of_translations(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]
) -> Chance | None:
    """The same of translations, by lines spread evenly; None if they have the same references."""
    last = len(hypotheses) - 1
    rows = np.linspace(0, last, min(last + 1, LINES_FOR_CHANCE)).round().astype(int).tolist()
    some, own = [hypotheses[row] for row in rows], [[stream[row] for row in rows] for stream in references]
    if len(set(zip(*own, strict=True))) < 2:
        return None

    def score(places: Sequence[int]) -> float:
        return metric.score([some[place] for place in places], own, sources=[sources[row] for row in rows]).score

    points = metric.scorer() is not None
    return chance_of(metric.name, score, lines=len(some), higher_is_better=metric.higher_is_better, points=points)
