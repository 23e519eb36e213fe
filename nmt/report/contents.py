"""What the report says of the models of a test set: words, numbers, sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from nmt.evaluation import Metric, build_metric
from nmt.evaluation.metrics import Score, counting
from nmt.evaluation.report import Result
from nmt.evaluation.significance import APPROXIMATE, DEFAULT_SAMPLES, DEFAULT_TRIALS, Comparison
from nmt.library.evaluation import measured
from nmt.registry import GROUPINGS
from nmt.report.over_under import REPEATED_ORDERS, OverUnder, is_repeating, over_under


class Words:
    """Cuts lines as `bleu` does with the same options."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options` are those of the metric `bleu`."""
        scorer = build_metric("bleu", options).scorer()
        assert scorer is not None
        self._scorer = scorer

    def of(self, lines: Iterable[str]) -> list[list[str]]:
        """The words of each line."""
        return list(self.each(lines))

    def each(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The same, one line after the other."""
        return (self._scorer._preprocess_segment(line).split() for line in lines)


LEVEL = 0.05
"""Below it a difference is called significant."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The subject of a report: systems on the same sentences; the first system is the baseline."""

    systems: Mapping[str, Sequence[str]]
    """Translations by the names of the systems."""
    references: Sequence[Sequence[str]]
    source: Sequence[str] | None = None
    frequencies: Counter[str] | None = None
    """How often words come in the training text, if there is one."""
    training: str = ""
    """What that text is called."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """What people should know of a system, such as that a model made it here."""
    languages: tuple[str, str] = ("", "")
    """Codes of source and target; empty where not known."""


class Cell(NamedTuple):
    """A number of a table, its share of the table's largest number in percent, and whether it is the best of its
    row."""

    text: str
    share: float
    best: bool


def letter(place: int) -> str:
    """What a system is called in the tables: A, B, ..., Z, AA, ..."""
    return (letter(place // 26 - 1) if place >= 26 else "") + chr(ord("A") + place % 26)


def contents(subject: Subject, metrics: Sequence[Metric], words: Words) -> dict[str, Any]:
    """All sections but the sentences. `metrics` count each sentence once, see `counting`."""
    letters = [letter(place) for place in range(len(subject.systems))]
    sampled = measured(
        metrics, subject.systems, subject.references, baselines={}, confidence=True, sources=subject.source
    )
    exchanged = measured(
        metrics, subject.systems, subject.references, baselines={}, test=APPROXIMATE, sources=subject.source
    )
    lines = {name: words.of(text) for name, text in subject.systems.items()}
    streams = [words.of(stream) for stream in subject.references]
    found = {
        "systems": [
            {"letter": sign, "name": name, "kind": subject.kinds.get(name, "")}
            for sign, name in zip(letters, subject.systems, strict=True)
        ],
        "sentences": len(subject.references[0]),
        "references": len(subject.references),
        "scores": [
            _card(letters, [s.results[n] for s in sampled], [s.results[n] for s in exchanged])
            for n in range(len(metrics))
        ],
        "samples": f"{DEFAULT_SAMPLES:,}",
        "trials": f"{DEFAULT_TRIALS:,}",
        "level": LEVEL,
        "breakdowns": _breakdowns(letters, [[result.score for result in system.results] for system in sampled]),
        "lengths": _lengths(subject, metrics, [result.score.name for result in sampled[0].results]),
        "length_of": "source" if subject.source is not None else "reference",
        "over_under": _over_under(letters, lines, streams),
        "repeated_orders": REPEATED_ORDERS,
        "training": subject.training,
        "frequencies": None,
        "robustness": None,
    }
    if subject.frequencies is not None:
        found["frequencies"] = _frequencies(lines, streams[0], subject.frequencies)
    return found


def _card(letters: Sequence[str], sampled: Sequence[Result], exchanged: Sequence[Result]) -> dict[str, Any]:
    """One metric: a row for each system with its interval and, except for the baseline, both tests."""
    first = sampled[0].score
    intervals = [result.confidence.interval for result in sampled if result.confidence]
    low = min(i.mean - i.half_width for i in intervals)
    high = max(i.mean + i.half_width for i in intervals)
    room = (high - low) or 1.0
    best = _best([result.score.score for result in sampled], higher=first.higher_is_better)
    rows = []
    for place, (result, other) in enumerate(zip(sampled, exchanged, strict=True)):
        interval = intervals[place]
        rows.append(
            {
                "letter": letters[place],
                "score": f"{result.score.score:.2f}",
                "half_width": f"{interval.half_width:.2f}",
                "left": _percent((interval.mean - interval.half_width - low) / room),
                "width": _percent(2 * interval.half_width / room),
                "middle": _percent((min(max(result.score.score, low), high) - low) / room),
                "difference": f"{result.score.score - first.score:+.2f}" if place else "",
                "tests": [_p_value(r.comparisons[0][1]) for r in (result, other)] if place else [],
                "best": place in best,
            }
        )
    return {
        "name": first.name,
        "better": "higher" if first.higher_is_better else "lower",
        "rows": rows,
        "signatures": list(
            dict.fromkeys(
                signature
                for result in (sampled[-1], exchanged[-1])
                for signature in (
                    [comparison.signature for _, comparison in result.comparisons]
                    or ([result.confidence.signature] if result.confidence else [])
                )
            )
        ),
    }


def _p_value(comparison: Comparison) -> dict[str, Any]:
    return {"text": f"{comparison.p_value:.4f}", "significant": comparison.p_value < LEVEL}


def _breakdowns(letters: Sequence[str], scores: Sequence[Sequence[Score]]) -> list[dict[str, Any]]:
    """Brevity penalty, lengths and precisions of each kind of BLEU."""
    found = []
    for of_metric in zip(*scores, strict=True):
        parts = [score.breakdown for score in of_metric]
        rows = [
            {
                "letter": sign,
                "penalty": f"{part.brevity_penalty:.3f}",
                "ratio": f"{part.ratio:.3f}",
                "length": f"{part.length:,}",
                "reference": f"{part.reference_length:,}",
                "precisions": [f"{precision:.1f}" for precision in part.precisions],
            }
            for sign, part in zip(letters, parts, strict=True)
            if part is not None
        ]
        if rows:
            found.append({"name": of_metric[0].name, "rows": rows})
    return found


def _lengths(subject: Subject, metrics: Sequence[Metric], names: Sequence[str]) -> list[dict[str, Any]]:
    """A table for each metric: sentences in buckets of the length of the source, else of the first reference."""
    lengths = GROUPINGS.get("length")(subject.references[0] if subject.source is None else subject.source)
    tables = []
    for metric, name in zip(metrics, names, strict=True):
        groups = [
            lengths.scored(metric, lines, subject.references, sources=subject.source).rows
            for lines in subject.systems.values()
        ]
        largest = max(part.score for parts in groups for part in parts)
        rows = [
            {
                "name": parts[0].name.replace("-", "\N{EN DASH}"),
                "count": f"{parts[0].size:,}",
                "cells": _cells([p.score for p in parts], largest, higher=metric.higher_is_better, digits=2),
            }
            for parts in zip(*groups, strict=True)
        ]
        tables.append({"name": name, "rows": rows, "better": "higher" if metric.higher_is_better else "lower"})
    return tables


def robustness(
    forms: Mapping[str, Mapping[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    metrics: Sequence[Metric],
    *,
    letters: Sequence[str],
    sources: Sequence[str],
) -> list[dict[str, Any]]:
    """A table for each metric: the scores of the systems `letters`, whose translations of each form of the source are
    `forms`, by system and form."""
    tables = []
    for metric in metrics:
        scores = [[metric.score(text, references, sources=sources) for text in own.values()] for own in forms.values()]
        largest = max(score.score for own in scores for score in own)
        higher = metric.higher_is_better
        rows = [
            {"name": name, "cells": _cells([score.score for score in row], largest, higher=higher, digits=2)}
            for name, row in zip(next(iter(forms.values())), zip(*scores, strict=True), strict=True)
        ]
        better = "higher" if higher else "lower"
        tables.append({"name": scores[0][0].name, "rows": rows, "better": better, "letters": list(letters)})
    return tables


def _frequencies(
    lines: Mapping[str, Sequence[Sequence[str]]], reference: Sequence[Sequence[str]], counts: Counter[str]
) -> list[dict[str, Any]]:
    """Rows of F1 by how often the training text has the words."""
    buckets = [GROUPINGS.get("frequency")(text, reference, counts) for text in lines.values()]
    largest = max(part.f1 for parts in buckets for part in parts)
    return [
        {
            "name": parts[0].times.replace("-", "\N{EN DASH}"),
            "count": f"{parts[0].words:,}",
            "cells": _cells([part.f1 for part in parts], largest, higher=True, digits=1),
        }
        for parts in zip(*buckets, strict=True)
        if parts[0].words or any(part.written for part in parts)
    ]


def _over_under(
    letters: Sequence[str], lines: Mapping[str, Sequence[Sequence[str]]], streams: Sequence[Sequence[Sequence[str]]]
) -> list[dict[str, Any]]:
    """A row for each system, and one for the first reference, for comparison of repetitions."""
    rows = [
        _over_under_row(sign, over_under(text, streams)) for sign, text in zip(letters, lines.values(), strict=True)
    ]
    itself = over_under(streams[0], [streams[0]])
    return [*rows, {"letter": "", "repeated": [f"{share:.2f}" for share in itself.repeated]}]


def _over_under_row(sign: str, found: OverUnder) -> dict[str, Any]:
    return {
        "letter": sign,
        "ratio": f"{found.length_ratio:.3f}",
        "repeated": [f"{share:.2f}" for share in found.repeated],
        "otem": f"{found.otem:.2f}",
        "utem": f"{found.utem:.2f}",
        "empty": f"{found.empty:,}",
        "short": f"{found.short:,}",
        "repeating": f"{found.repeating:,}",
    }


def _cells(values: Sequence[float], largest: float, *, higher: bool, digits: int) -> list[Cell]:
    best = _best([round(value, digits) for value in values], higher=higher)
    return [
        Cell(f"{value:.{digits}f}", _percent(value / largest if largest > 0 else 0.0), place in best)
        for place, value in enumerate(values)
    ]


def _best(values: Sequence[float], *, higher: bool) -> set[int]:
    """The places of the best of several values; none where there is one, or where all are equal."""
    wanted = (max if higher else min)(values)
    places = {place for place, value in enumerate(values) if value == wanted}
    return places if len(places) < len(values) else set()


def _percent(share: float) -> float:
    return round(100 * share, 2)


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """Scores of each sentence: lists by system, then by sentence."""

    bleu: list[list[float]]
    chrf: list[list[float]]
    repeating: list[list[int]]
    """The places of sentences that say something twice, by system."""
    lengths: list[int]
    """Words of the source, else of the first reference, between spaces."""
    subject: Subject = field(repr=False)

    def as_data(self, maps: Mapping[int, Any]) -> dict[str, Any]:
        """What the script reads; `maps` by the place of a sentence."""
        subject = self.subject
        return {
            "systems": [
                {"letter": letter(place), "name": name, "lines": list(lines)}
                for place, (name, lines) in enumerate(subject.systems.items())
            ],
            "references": [list(stream) for stream in subject.references],
            "source": None if subject.source is None else list(subject.source),
            "languages": list(subject.languages),
            "bleu": self.bleu,
            "chrf": self.chrf,
            "repeating": self.repeating,
            "lengths": self.lengths,
            "maps": {str(place): found for place, found in maps.items()},
        }


def sentences(subject: Subject, words: Words, options: Mapping[str, Any], *, chrf: Metric) -> Sentences:
    """Score each sentence by itself.

    `options` are those of the metric `bleu`, which counts only orders of n-grams that a sentence has; `chrf` is a
    metric that remembers what it has counted, see `counting`.
    """
    scorers = []
    for metric in (counting(build_metric("bleu", options)), chrf):
        scorer = metric.scorer()
        assert scorer is not None
        scorers.append(scorer)
    scorers[0].effective_order = True  # type: ignore[attr-defined]  # as sacreBLEU's sentence_bleu
    rows = list(zip(*subject.references, strict=True))
    scores = [
        [
            [round(float(scorer.sentence_score(line, row).score), 1) for line, row in zip(lines, rows, strict=True)]
            for lines in subject.systems.values()
        ]
        for scorer in scorers
    ]
    streams = [words.of(stream) for stream in subject.references]
    repeating = [
        [
            place
            for place, (line, *row) in enumerate(zip(words.of(lines), *streams, strict=True))
            if is_repeating(line, row)
        ]
        for lines in subject.systems.values()
    ]
    measured = subject.references[0] if subject.source is None else subject.source
    return Sentences(
        bleu=scores[0],
        chrf=scores[1],
        repeating=repeating,
        lengths=[len(line.split()) for line in measured],
        subject=subject,
    )


def shortest_first(values: Sequence[float]) -> list[int]:
    """The places of `values` from the least to the largest, equal ones in their order."""
    return sorted(range(len(values)), key=values.__getitem__)
