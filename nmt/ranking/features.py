"""N-best lists ranked by weighted sums of features, and the weights that score best (Och, ACL 2003).

S lists, of H translations in all with F features and K counts of a metric each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.errors import ConfigError
from nmt.evaluation.metrics import Metric
from nmt.ranking.n_best import Entry

WORDS: Final = "words"
"""A feature that every list has: how many words, which white space separates, a translation has."""
STARTS: Final = 10
"""Weights that the search begins with: the given ones, and random ones."""
ROUNDS: Final = 20
_SEED: Final = 1
_DIGITS: Final = 4
"""Decimals of the weights."""

Numbers = NDArray[np.float64]


def features_of(entry: Entry) -> Mapping[str, float]:
    """The features of the list, and WORDS if it has none of that name."""
    return {WORDS: float(len(entry.text.split())), **entry.features}


def weighted(entry: Entry, weights: Mapping[str, float]) -> float:
    """The sum of the features times their weights; an infinite feature makes it -infinity, whatever its weight.

    Raises KeyError for a feature that the translation lacks.
    """
    features = features_of(entry)
    total = sum(weight * features[name] for name, weight in weights.items())
    return total if math.isfinite(total) else -math.inf


def ranked(entries: Sequence[Entry], weights: Mapping[str, float]) -> list[Entry]:
    """The translations of a line, best first, with their sums as scores; of equal ones the first stays first."""
    totals = [weighted(entry, weights) for entry in entries]
    best_first = sorted(range(len(entries)), key=lambda place: -totals[place])
    return [entries[place].with_score(totals[place]) for place in best_first]


class Tuned(NamedTuple):
    """Weights that were found."""

    weights: dict[str, float]
    """Their absolute values add up to 1, up to rounding."""
    score: float
    """Score of the translations chosen with these weights."""
    before: float
    """Score of the first translation of each line."""


@dataclass(frozen=True)
class Lists:
    """N-best lists as numbers."""

    features: Numbers  # [H, F]
    counts: Numbers  # [H, K], which are added up over a text
    starts: NDArray[np.int64]  # [S + 1]; where each list begins, and the end

    def chosen(self, weights: Numbers) -> NDArray[np.int64]:
        """The best of each list [S], by weights [F]; the first of equal ones."""
        totals = self.features @ weights
        pairs = zip(self.starts[:-1], self.starts[1:], strict=True)
        return np.array([start + int(totals[start:end].argmax()) for start, end in pairs], np.int64)


def tune(groups: Sequence[Sequence[Entry]], references: Sequence[Sequence[str]], metric: Metric) -> Tuned:
    """The weights whose chosen translations score highest by `metric`; deterministic.

    Along one weight at a time the score is known for all its values (minimum error rate training); that is repeated
    until no weight gains, from several beginnings. The score is computed from sums of the metric's counts, as for a
    text.

    Args:
        groups: the translations of each line, one at least.
        references: streams with a line for each of them.

    Raises ConfigError for a metric that is not sacreBLEU's, and for lists without a common feature.
    """
    scorer: Any = metric.scorer()
    if scorer is None:
        raise ConfigError(f"metric {metric.name}: has no counts that add up, unlike sacreBLEU's metrics")
    metric.check(references)
    # The features that all translations have, in the order of the first.
    every = set(features_of(groups[0][0])).intersection(*(features_of(entry) for group in groups for entry in group))
    names = [name for name in features_of(groups[0][0]) if name in every and name != WORDS]
    if not names:
        raise ConfigError("the translations of the list have no common feature")
    names.append(WORDS)
    lists = _lists(groups, references, scorer, names)
    sign = 1 if metric.higher_is_better else -1

    def value_of(sums: Numbers) -> float:
        return sign * float(scorer._compute_score_from_stats(sums.tolist()).score)

    def score_of(places: NDArray[np.int64]) -> float:
        return sign * value_of(lists.counts[places].sum(0))

    generator = np.random.default_rng(_SEED)
    scale = np.maximum(lists.features.std(0), 1e-9)
    first = np.zeros(len(names))
    first[0] = 1.0
    found: list[tuple[float, Numbers]] = []
    for number in range(STARTS):
        weights = first if number == 0 else generator.normal(size=len(names)) / scale
        weights = _climbed(lists, weights, value_of)
        shares = weights / max(float(np.abs(weights).sum()), 1e-30)
        weights = np.array([float(f"{value:.{_DIGITS}g}") for value in shares])
        found.append((sign * score_of(lists.chosen(weights)), weights))
    best = max(found, key=lambda one: one[0])[1]
    chosen = dict(zip(names, best.tolist(), strict=True))
    return Tuned(chosen, score_of(lists.chosen(best)), score_of(lists.starts[:-1]))


def _lists(
    groups: Sequence[Sequence[Entry]], references: Sequence[Sequence[str]], scorer: Any, names: Sequence[str]
) -> Lists:
    """As numbers; translations with infinite features are left out, unless a line has no other."""
    rows: list[list[float]] = []
    texts: list[str] = []
    matched: list[list[str]] = [[] for _ in references]
    starts = [0]
    for place, group in enumerate(groups):
        values = [[features_of(entry)[name] for name in names] for entry in group]
        usable = [i for i, row in enumerate(values) if all(map(math.isfinite, row))]
        for i in usable or [0]:
            rows.append(values[i] if usable else [0.0] * len(names))
            texts.append(group[i].text)
            for own, stream in zip(matched, references, strict=True):
                own.append(stream[place])
        starts.append(len(rows))
    counts = scorer._extract_corpus_statistics(texts, matched)
    return Lists(np.array(rows), np.array(counts, np.float64), np.array(starts))


def _climbed(lists: Lists, weights: Numbers, value_of: Any) -> Numbers:
    """The weights after as many improvements along single ones as there are."""
    reached = value_of(lists.counts[lists.chosen(weights)].sum(0))
    for _ in range(ROUNDS):
        best: tuple[float, Numbers] = (reached, weights)
        for feature in range(len(weights)):
            value, at = _best_along(lists, weights, feature, value_of)
            if value > best[0] + 1e-9:
                moved = weights.copy()
                moved[feature] = at
                best = value, moved
        if best[1] is weights:
            break
        reached, weights = best
    return weights


def _best_along(lists: Lists, weights: Numbers, feature: int, value_of: Any) -> tuple[float, float]:
    """The best value that changing one weight can reach, and that weight: the middle of the stretch that reaches it."""
    others = weights.copy()
    others[feature] = 0.0
    base, slope = lists.features @ others, lists.features[:, feature]
    sums = np.zeros(lists.counts.shape[1])
    changes: list[tuple[float, Numbers]] = []
    for start, end in zip(lists.starts[:-1], lists.starts[1:], strict=True):
        hull = _envelope(base[start:end], slope[start:end])
        counts = lists.counts[start:end]
        sums += counts[hull[0][1]]
        changes += [(at, counts[i] - counts[before]) for (_, before), (at, i) in zip(hull, hull[1:], strict=False)]
    changes.sort(key=lambda change: change[0])
    ends = [at for at, _ in changes]
    if not ends:
        return value_of(sums), float(weights[feature])
    width = max(1e-3, (ends[-1] - ends[0]) / 10)
    best = (value_of(sums), ends[0] - width)
    for number, (at, change) in enumerate(changes):
        sums = sums + change
        following = ends[number + 1] if number + 1 < len(ends) else at + 2 * width
        if following > at and (value := value_of(sums)) > best[0]:
            best = (value, (at + following) / 2)
    return best


def _envelope(base: Numbers, slope: Numbers) -> list[tuple[float, int]]:
    """The lines base + x * slope that are highest somewhere: from which x on, and which, by growing x."""
    order = sorted(range(len(base)), key=lambda i: (slope[i], base[i], -i))
    hull: list[tuple[float, int]] = []
    for i in order:
        at = -math.inf
        while hull:
            start, top = hull[-1]
            if slope[i] == slope[top]:
                hull.pop()  # it is not above this one anywhere
                continue
            at = (base[top] - base[i]) / (slope[i] - slope[top])
            if at > start:
                break
            hull.pop()
            at = -math.inf
        hull.append((at, i))
    return hull
