"""Evaluation results as tables for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from nmt.evaluation.by_length import LengthBucket
from nmt.evaluation.metrics import Score
from nmt.evaluation.significance import Comparison, Interval


class Result(NamedTuple):
    """All that was measured with one metric."""

    score: Score
    comparisons: Sequence[tuple[str, Comparison]] = ()
    """Name of each baseline and the comparison with it."""
    buckets: Sequence[LengthBucket] = ()


def as_json(results: Sequence[Result]) -> str:
    """A list of objects with sacreBLEU's keys `name`, `score` (unrounded) and `signature`.

    `baselines` and `by_length` stand beside them where they were asked for; `mean` and `ci` are sacreBLEU's
    names for the true mean and for half the width of the 95% interval.
    """
    return json.dumps([_json_object(result) for result in results], indent=1, ensure_ascii=False)


def as_text(results: Sequence[Result]) -> str:
    """Tables of the scores, then of the comparisons and of the scores by length, if there are any."""
    rows = [(r.score.name, f"{r.score.score:.2f}", _direction(r.score), r.score.signature) for r in results]
    parts = [table(("metric", "score", "better", "signature"), rows)]
    compared = [(r.score.name, *comparison) for r in results for comparison in r.comparisons]
    if compared:
        head = ("metric", "system", "score", "mean, 95% interval", "p-value", "signature")
        parts.append("paired bootstrap:\n" + table(head, [row for c in compared for row in _comparison_rows(*c)]))
    measured = [result for result in results if result.buckets]
    if measured:
        parts.append("by words in the first reference:\n" + _length_table(measured))
    return "\n\n".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned with spaces: figures at the right, words at the left."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = (_align(cell, width, figure=_is_figure(cell)) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _json_object(result: Result) -> dict[str, Any]:
    """One metric as sacreBLEU writes it, with what was asked for besides."""
    score = result.score
    entry: dict[str, Any] = {"name": score.name, "score": score.score, "signature": score.signature}
    if result.comparisons:
        entry["baselines"] = [
            {
                "baseline": name,
                "baseline_score": comparison.baseline.score,
                "mean": comparison.system.mean,
                "ci": comparison.system.half_width,
                "p_value": comparison.p_value,
                "signature": comparison.signature,
            }
            for name, comparison in result.comparisons
        ]
    if result.buckets:
        entry["by_length"] = [
            {"first": b.first, "last": b.last, "sentences": b.sentences, "score": b.score.score} for b in result.buckets
        ]
    return entry


def _comparison_rows(metric: str, name: str, comparison: Comparison) -> list[tuple[str, ...]]:
    """The baseline's row and the system's, as sacreBLEU pairs them."""
    baseline = (metric, f"baseline: {name}", *_interval(comparison.baseline), "", comparison.signature)
    system = (metric, "this system", *_interval(comparison.system), f"{comparison.p_value:.4f}", comparison.signature)
    return [baseline, system]


def _length_table(results: Sequence[Result]) -> str:
    """A row for each bucket of lengths, a column for each metric; all metrics have the same buckets."""
    head = ("words", "sentences", *(result.score.name for result in results))
    rows = []
    for parts in zip(*(result.buckets for result in results), strict=True):
        first, last = parts[0].first, parts[0].last
        words = f"{first}+" if last is None else f"{first}-{last}"
        rows.append((words, str(parts[0].sentences), *(f"{part.score.score:.2f}" for part in parts)))
    return table(head, rows)


def _interval(interval: Interval) -> tuple[str, str]:
    return f"{interval.score:.2f}", f"{interval.mean:.2f} +- {interval.half_width:.2f}"


def _direction(score: Score) -> str:
    return "higher" if score.higher_is_better else "lower"


def _is_figure(cell: str) -> bool:
    return cell.replace(".", "", 1).isdigit()


def _align(cell: str, width: int, *, figure: bool) -> str:
    return cell.rjust(width) if figure else cell.ljust(width)
