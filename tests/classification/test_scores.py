"""Scores of labels against scikit-learn and by hand."""

from __future__ import annotations

import random

import pytest

from nmt.classification.task import Confusion

LABELS = ["a", "b", "c", "d"]


def test_scores_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    generator = random.Random(5)
    wanted = [generator.choice([0, 0, 1, 2]) for _ in range(200)]
    found = [label if generator.random() < 0.6 else generator.choice([0, 1, 2]) for label in wanted]
    confusion = Confusion.of(wanted, found, labels=LABELS)
    assert confusion.accuracy == pytest.approx(100 * metrics.accuracy_score(wanted, found))
    assert confusion.macro_f1 == pytest.approx(100 * metrics.f1_score(wanted, found, average="macro"))
    assert confusion.counts[:3, :3].tolist() == metrics.confusion_matrix(wanted, found).tolist()
    expected = zip(*metrics.precision_recall_fscore_support(wanted, found)[:3], strict=True)
    assert list(confusion.by_label) == ["a", "b", "c"], "nobody says d"
    for own, other in zip(confusion.by_label.values(), expected, strict=True):
        assert list(own) == pytest.approx([100 * score for score in other])


def test_by_hand() -> None:
    confusion = Confusion.of([0, 0, 1], [0, 1, 2], labels=LABELS[:3])
    assert confusion.scores == pytest.approx({"accuracy": 100 / 3, "macro_f1": 200 / 9})
    assert confusion.by_label["c"] == (0, 0, 0)
    lines = [line.split() for line in confusion.lines()]
    assert lines[0] == ["a", "precision", "100.00", "recall", "50.00", "f1", "66.67"]
    assert lines[-3:] == [["a", "1", "1", "0"], ["b", "0", "0", "1"], ["c", "0", "0", "0"]]
    pairs = {("a", "a"): 1, ("a", "b"): 1, ("b", "c"): 1}
    assert (Confusion.of_pairs(pairs, labels=LABELS[:3]).counts == confusion.counts).all()


def test_nothing_to_count_is_0() -> None:
    assert Confusion.of([], [], labels=LABELS).scores == {"accuracy": 0, "macro_f1": 0}
