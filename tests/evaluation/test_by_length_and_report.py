"""Scores by length, and the tables and JSON that show results."""

from __future__ import annotations

import json

import pytest

from nmt.errors import DataError
from nmt.evaluation import Comparison, by_length
from nmt.evaluation.report import Result, as_json, as_text
from nmt.evaluation.significance import Interval
from nmt.registry import METRICS

REFERENCES = ["", "one two three four five", "a b c d e f g h i j", "a b c d e f g h i j k l"]
HYPOTHESES = ["", "one two three four five", "a b c d e f g h i j", "l k j i h g f e d c b a"]


def test_buckets_hold_every_sentence_once_and_score_their_own():
    buckets = by_length(METRICS.get("bleu")(), HYPOTHESES, references=[REFERENCES], bounds=(5, 10))
    assert [(b.first, b.last, b.sentences) for b in buckets] == [(0, 5, 2), (6, 10, 1), (11, None, 1)]
    assert [round(b.score.score) for b in buckets[:2]] == [100, 100]
    assert buckets[2].score.score < 20


def test_empty_buckets_are_left_out():
    buckets = by_length(METRICS.get("chrf")(), HYPOTHESES, references=[REFERENCES], bounds=(2, 3, 20))
    assert [(b.first, b.last) for b in buckets] == [(0, 2), (4, 20)]


def test_streams_must_fit():
    with pytest.raises(DataError, match="4 translations but 3 lines"):
        by_length(METRICS.get("bleu")(), HYPOTHESES, references=[REFERENCES[1:]])


@pytest.fixture
def results() -> list[Result]:
    metrics = [METRICS.get(name)() for name in ("bleu", "ter")]
    comparison = Comparison(Interval(30.0, 29.9, 1.5), Interval(20.0, 20.1, 1.25), 0.004, "seed:1|bs:10")
    return [
        Result(
            metric.compute(HYPOTHESES, [REFERENCES]),
            [("other.txt", comparison)],
            by_length(metric, HYPOTHESES, references=[REFERENCES], bounds=(5,)),
        )
        for metric in metrics
    ]


def test_json_has_sacrebleus_keys_and_unrounded_scores(results):
    entries = json.loads(as_json(results))
    assert [entry["name"] for entry in entries] == ["BLEU", "TER"]
    for entry, result in zip(entries, results, strict=True):
        assert list(entry)[:3] == ["name", "score", "signature"]
        assert entry["score"] == result.score.score
        assert entry["signature"] == result.score.signature
        assert entry["baselines"][0] == {
            "baseline": "other.txt",
            "baseline_score": 20.0,
            "mean": 29.9,
            "ci": 1.5,
            "p_value": 0.004,
            "signature": "seed:1|bs:10",
        }
        assert [bucket["sentences"] for bucket in entry["by_length"]] == [2, 2]


def test_plain_results_have_nothing_but_sacrebleus_keys(results):
    (entry,) = json.loads(as_json([Result(results[0].score)]))
    assert list(entry) == ["name", "score", "signature"]
    assert len(as_text([Result(results[0].score)]).split("\n")) == 2


def test_table_shows_score_direction_and_signature(results):
    lines = as_text(results).split("\n")
    assert lines[1].split()[:3] == ["BLEU", f"{results[0].score.score:.2f}", "higher"]
    assert lines[2].split()[:3] == ["TER", f"{results[1].score.score:.2f}", "lower"]
    assert lines[1].endswith(results[0].score.signature)
    assert lines[1].index("higher") == lines[2].index("lower")
    text = "\n".join(lines)
    assert "baseline: other.txt" in text and "0.0040" in text and "29.90 +- 1.50" in text
    assert "0-5" in text and "6+" in text
