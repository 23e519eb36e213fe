"""The table of sentences: texts and scores of each, as data for the page's script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nmt.evaluation import Metric, build_metric
from nmt.evaluation.metrics import counting
from nmt.report.contents import Subject, letter
from nmt.report.over_under import is_repeating
from nmt.report.words import Words


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
