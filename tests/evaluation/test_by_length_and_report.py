"""Scores by length, and the tables and JSON that show results."""

from __future__ import annotations

import json

import pytest

from nmt.errors import DataError
from nmt.evaluating.groups import by_length
from nmt.evaluation import Comparison
from nmt.evaluation.report import Result, System, Table, as_json, text_tables, written
from nmt.evaluation.significance import Confidence, Interval
from nmt.registry import METRICS

REFERENCES = ["", "one two three four five", "a b c d e f g h i j", "a b c d e f g h i j k l"]
HYPOTHESES = ["", "one two three four five", "a b c d e f g h i j", "l k j i h g f e d c b a"]


def test_buckets_hold_every_sentence_once_and_score_their_own():
    groups = by_length(REFERENCES, most=(5, 10)).scored(METRICS.get("bleu")(), HYPOTHESES, [REFERENCES]).rows
    assert [(one.name, one.size) for one in groups] == [("0-5", 2), ("6-10", 1), ("11+", 1)]
    assert [one.keys for one in groups[1:]] == [{"first": 6, "last": 10}, {"first": 11, "last": None}]
    assert [round(one.score) for one in groups[:2]] == [100, 100]
    assert groups[2].score < 20


def test_buckets_are_scored_with_all_references() -> None:
    wrong = ["x y z"] * len(HYPOTHESES)
    groups = by_length(wrong, most=(5,)).scored(METRICS.get("bleu")(), HYPOTHESES, [wrong, HYPOTHESES]).rows
    assert [(one.size, round(one.score)) for one in groups] == [(4, 100)]


def test_empty_buckets_are_left_out():
    groups = by_length(REFERENCES, most=(2, 3, 20)).scored(METRICS.get("chrf")(), HYPOTHESES, [REFERENCES])
    assert [one.name for one in groups.rows] == ["0-2", "4-20"]


def test_streams_must_fit():
    with pytest.raises(DataError, match="4 translations but 3 lines"):
        by_length(REFERENCES).scored(METRICS.get("bleu")(), HYPOTHESES, [REFERENCES[1:]])


@pytest.fixture
def results() -> list[Result]:
    metrics = [METRICS.get(name)() for name in ("bleu", "ter")]
    comparison = Comparison(Interval(30.0, 29.9, 1.5), Interval(20.0, 20.1, 1.25), 0.004, "seed:1|bs:10", 20.0)
    return [
        Result(
            metric.compute(HYPOTHESES, [REFERENCES]),
            [("other.txt", comparison)],
            {"length": by_length(REFERENCES, most=(5,)).scored(metric, HYPOTHESES, [REFERENCES])},
            Confidence(Interval(30.0, 29.8, 1.75), "seed:2|bs:9"),
        )
        for metric in metrics
    ]


def test_json_has_sacrebleus_keys_and_unrounded_scores(results):
    entries = json.loads(as_json([System("system", results)]))
    assert [entry["name"] for entry in entries] == ["BLEU", "TER"]
    for entry, result in zip(entries, results, strict=True):
        assert list(entry)[:3] == ["name", "score", "signature"]
        assert entry["score"] == result.score.score
        assert entry["signature"] == result.score.signature
        assert entry["baselines"][0] == {
            "baseline": "other.txt",
            "baseline_score": 20.0,
            "test": "bootstrap",
            "mean": 29.9,
            "ci": 1.5,
            "p_value": 0.004,
            "signature": "seed:1|bs:10",
        }
        assert entry["confidence"] == {"mean": 29.8, "ci": 1.75, "signature": "seed:2|bs:9"}
        assert [list(part) for part in entry["by_length"]] == [["first", "last", "sentences", "score"]] * 2
        assert [part["sentences"] for part in entry["by_length"]] == [2, 2]


def test_plain_results_have_nothing_but_sacrebleus_keys_and_the_parts_of_bleu(results):
    bleu, ter = json.loads(as_json([System("system", [Result(result.score) for result in results])]))
    assert list(ter) == ["name", "score", "signature"]
    parts = results[0].score.breakdown
    assert bleu == {
        **{key: bleu[key] for key in ("name", "score", "signature")},
        "brevity_penalty": parts.brevity_penalty,
        "ratio": 27 / 27,
        "length": 27,
        "reference_length": 27,
        "precisions": [pytest.approx(precision) for precision in (100.0, 100 * 13 / 24, 100 * 11 / 21, 50.0)],
    }


def test_several_systems_in_json(results):
    first, second = json.loads(as_json([System("a", results[:1]), System("b", results[1:])]))
    assert (first["system"], second["system"]) == ("a", "b")
    assert [metric["name"] for metric in (*first["metrics"], *second["metrics"])] == ["BLEU", "TER"]


def test_tables_of_one_system(results):
    text = written([System("system", results)], "text")
    lines = text.split("\n")
    assert lines[1].split()[:3] == ["BLEU", f"{results[0].score.score:.2f}", "higher"]
    assert lines[2].split()[:3] == ["TER", f"{results[1].score.score:.2f}", "lower"]
    assert lines[1].endswith("29.80 +- 1.75")
    assert "baseline: other.txt" in text and "0.0040" in text and "29.90 +- 1.50" in text
    assert "0-5" in text and "6+" in text
    assert "1.000  1.000" in text and "100.0/54.2/52.4/50.0" in text
    assert "BLEU  seed:2|bs:9" in text, "what was resampled is told by its own signature"
    plain = written([System("system", [Result(result.score) for result in results])], "text")
    assert f"TER   {results[1].score.signature}" in plain and "%" not in plain


def test_each_metric_has_its_own_comparison(results: list[Result]) -> None:
    comparison = results[1].comparisons[0][1]._replace(p_value=0.25, baseline_score=40.0)
    text = written(
        [System("system", [results[0], results[1]._replace(comparisons=[("other.txt", comparison)])])], "text"
    )
    rows = [line.split() for line in text.split("\n") if line.startswith(("baseline: other.txt", "this system"))]
    assert [(row[2], row[3]) for row in rows[::2]] == [("BLEU", "20.00"), ("TER", "40.00")]
    assert [row[-1] for row in rows[1::2]] == ["0.0040", "0.2500"]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_text_fits_80_columns(results, count):
    names = [f"experiments/of/a/very/long/directory/name/{n}/translations.with-a-long-name.de" for n in range(count)]
    systems = [System(name, (results * 4)[: 2 + count]) for name in names]
    lines = written(systems, "text").split("\n")
    assert [line for line in lines if len(line) > 80 and not line.startswith("by words")] == []
    assert count == 1 or max(map(len, lines)) > 70


def test_long_names_keep_both_ends_and_wide_tables_come_in_parts():
    head = ("system", *(f"metric {n}" for n in range(12)))
    table = Table(head, [("begin" + "x" * 60 + "end.de", *(str(n) for n in range(12)))], "many")
    text = text_tables([table], [])
    assert all(len(line) <= 80 for line in text.split("\n"))
    assert text.count("begin") == text.count("end.de") >= 2
    assert [int(n) for line in text.split("\n") if "begin" in line for n in line.split()[1:]] == list(range(12))


def test_markdown_and_latex(results):
    system = System("a_b|c%.de", results)
    markdown, latex = (written([system, System("d", results)], form) for form in ("markdown", "latex"))
    assert "| a\\_b\\|c%.de | " in markdown and "|-|-:|-:|" in markdown
    assert "- BLEU: `seed:2|bs:9`" in markdown
    assert r"a\_b|c\%.de & " in latex and r"29.80 $\pm$ 1.75" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == latex.count(r"\midrule") == 6
    assert "% BLEU: seed:2|bs:9" in latex
    for line in latex.split("\n"):
        assert line.startswith(("%", "\\")) or line.endswith(r"\\") or not line
