"""Scores of spans against seqeval, and of words by hand."""

from __future__ import annotations

import random

import pytest

from nmt.tagging.labels import Span, labels_of, spans, word_spans
from nmt.tagging.task import F1, SpanCounts


def test_scores_are_those_of_seqeval() -> None:
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed")
    generator = random.Random(5)
    known = ["O", "O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in ("LOC", "PER", "ORG"))]
    wanted, found = ([[generator.choice(known) for _ in range(n)] for n in range(1, 40)] for _ in range(2))
    for right, own in zip(wanted, found, strict=True):
        own[::2] = right[::2]
    counts = SpanCounts()
    for right, own in zip(wanted, found, strict=True):
        counts.add(spans(right), spans(own))
    report = metrics.classification_report(wanted, found, output_dict=True, zero_division=0)
    assert counts.overall.f1 == pytest.approx(100 * metrics.f1_score(wanted, found))
    assert counts.overall.precision == pytest.approx(100 * metrics.precision_score(wanted, found))
    assert counts.overall.recall == pytest.approx(100 * metrics.recall_score(wanted, found))
    assert set(counts.by_kind) == {"LOC", "PER", "ORG"}
    for kind, own in counts.by_kind.items():
        expected = [100 * report[kind][name] for name in ("f1-score", "precision", "recall")]
        assert list(own) == pytest.approx(expected)


def test_words_are_right_where_both_ends_are() -> None:
    wanted, found = ["上海", "推", "迎奥运"], ["上", "海", "推", "迎奥运"]
    counts = SpanCounts()
    tokens = list("".join(wanted))
    counts.add(word_spans(labels_of(wanted)), word_spans(labels_of(found)), tokens=tokens, known={"上海", "海"})
    assert counts.overall == pytest.approx(F1(400 / 7, 50.0, 200 / 3))
    assert counts.new == 2 and counts.new_recall == 100
    counts.add([Span("", 0, 2)], [Span("", 0, 1), Span("", 1, 2)], tokens=list("北京"), known={"上海"})
    assert counts.new_recall == pytest.approx(200 / 3)


def test_words_of_the_training_text_do_not_count_in_the_recall_of_new_words() -> None:
    counts = SpanCounts()
    wanted, found = ["上海", "推", "北京"], ["上海", "推", "北", "京"]
    spans_of = [word_spans(labels_of(words)) for words in (wanted, found)]
    counts.add(*spans_of, tokens=list("上海推北京"), known={"上海", "推"})
    assert counts.overall.recall == pytest.approx(200 / 3) and counts.new_recall == 0


def test_nothing_to_find_is_0() -> None:
    assert SpanCounts().overall == F1(0, 0, 0) and SpanCounts().new_recall is None
    counts = SpanCounts()
    counts.add([], [Span("LOC", 0, 1)])
    assert counts.by_kind == {"LOC": F1(0, 0, 0)}
