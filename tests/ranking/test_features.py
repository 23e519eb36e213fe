"""Ranking n-best lists: the exact search along a weight against a grid, and weights that find what is hidden."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from nmt.errors import ConfigError
from nmt.evaluation import Metric, build_metric
from nmt.ranking.features import _best_along, _lists, features_of, ranked, tune, weighted
from nmt.ranking.n_best import Entry, read_n_best

WORDS = list("abcdefghijklmnop")


def lists(sentences: int, *, hypotheses: int = 6, seed: int = 1) -> tuple[list[list[Entry]], list[str]]:
    """Translations with more or less words changed, a feature that knows how many, and others that do not."""
    generator = random.Random(seed)
    groups, references = [], []
    for number in range(sentences):
        reference = [generator.choice(WORDS) for _ in range(9)]
        references.append(" ".join(reference))
        entries = []
        for _ in range(hypotheses):
            changed = generator.randint(0, 6)
            text = [generator.choice(WORDS) if i < changed else word for i, word in enumerate(reference)]
            good = -changed + generator.gauss(0, 0.7)
            line = f"{number} ||| {' '.join(text)} ||| score= {generator.gauss(-1, 1):.4f} good= {good:.4f} ||| 0"
            entries.append(line)
        groups.append(list(read_n_best(entries, name="list")))
    return groups, references


def score_of(groups: list[list[Entry]], references: list[str], weights: dict[str, float], metric: Metric) -> float:
    return metric.compute([ranked(group, weights)[0].text for group in groups], [references]).score


def test_the_best_along_a_weight_is_that_of_a_fine_grid() -> None:
    """No weight of the grid scores higher, and what is promised is what the translations score."""
    groups, references = lists(20)
    metric = build_metric("bleu")
    scorer: Any = metric.scorer()
    names = ["score", "good", "words"]
    found = _lists(groups, [references], scorer, names)

    def value_of(sums: Any) -> float:
        return float(scorer._compute_score_from_stats(sums.tolist()).score)

    for feature, weights in ((1, [1.0, 0.0, 0.1]), (0, [0.0, 1.0, -0.2]), (1, [-1.0, 2.0, 0.0])):
        value, at = _best_along(found, np.array(weights), feature, value_of)
        grid = [weights[:feature] + [x] + weights[feature + 1 :] for x in np.linspace(-8, 8, 1601).tolist()]
        scores = [value_of(found.counts[found.chosen(np.array(own))].sum(0)) for own in grid]
        assert value >= max(scores) - 1e-9
        there = dict(zip(names, weights[:feature] + [at] + weights[feature + 1 :], strict=True))
        assert score_of(groups, references, there, metric) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_weights_are_found_that_score_better_and_are_the_same_at_every_run(name: str) -> None:
    groups, references = lists(30)
    metric = build_metric(name)
    found = tune(groups, [references], metric)
    assert found == tune(groups, [references], metric)
    sign = 1 if metric.higher_is_better else -1
    assert sign * (found.score - found.before) > 15
    assert found.score == pytest.approx(score_of(groups, references, found.weights, metric), abs=1e-9)
    assert sum(map(abs, found.weights.values())) == pytest.approx(1, abs=1e-3)
    best = max(found.weights, key=lambda one: found.weights[one])
    assert best == "good" and set(found.weights) == {"score", "good", "words"}
    unseen = lists(200, seed=2)
    assert sign * (score_of(*unseen, found.weights, metric) - score_of(*unseen, {"score": 1.0}, metric)) > 15


def test_infinite_features_are_never_chosen_and_do_not_disturb() -> None:
    lines = ["0 ||| a b ||| score= -inf good= 9 ||| 0", "0 ||| a ||| score= -3 good= 1 ||| 0"]
    entries = list(read_n_best(lines, name="list"))
    assert weighted(entries[0], {"score": 0.0, "good": 1.0}) == -math.inf
    assert [entry.text for entry in ranked(entries, {"score": 0.0, "good": 1.0})] == ["a", "a b"]
    found = tune([entries, entries[:1]], [["a", "a b"]], build_metric("chrf"))
    assert found.score == pytest.approx(100) and all(map(math.isfinite, found.weights.values()))


def test_equal_sums_keep_the_order_of_the_list() -> None:
    entries = list(read_n_best([f"0 ||| {text} ||| score= -1 ||| 0" for text in "cab"], name="list"))
    assert [entry.text for entry in ranked(entries, {"score": 1.0})] == ["c", "a", "b"]
    assert features_of(entries[0])["words"] == 1


def test_a_feature_named_words_of_the_list_is_kept() -> None:
    (entry,) = read_n_best(["0 ||| a b c ||| score= -1 words= 7 ||| 0"], name="list")
    assert features_of(entry)["words"] == 7
    assert weighted(entry, {"words": 2.0}) == 14


def test_metrics_and_lists_that_cannot_be_tuned_are_named() -> None:
    class Own(Metric):
        name = "own"

        def compute(self, hypotheses: Any, references: Any) -> Any:
            return None

    groups, references = lists(2)
    with pytest.raises(ConfigError, match="metric own: has no counts that add up"):
        tune(groups, [references], Own())
    bare = [list(read_n_best(["0 ||| a |||  ||| 0"], name="list"))]
    with pytest.raises(ConfigError, match="no common feature"):
        tune(bare, [["a"]], build_metric("bleu"))
