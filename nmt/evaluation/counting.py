"""Metrics that count each sentence once, however often texts that hold it are scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric as Scorer

from nmt.evaluation.metrics import Metric, SacrebleuMetric


def counting(metric: Metric) -> Metric:
    """`metric`, which from now on caches the match counts of each translation with its references.

    Scores of a text, of its parts and of its resamples then need only one count. Metrics that are not sacreBLEU's are
    returned unchanged.
    """
    return _Counting(metric) if isinstance(metric, SacrebleuMetric) and not isinstance(metric, _Counting) else metric


class _Counting(SacrebleuMetric):
    def __init__(self, metric: SacrebleuMetric) -> None:
        super().__init__(options=metric.options)
        self.name, self.label = metric.name, metric.label  # type: ignore[misc]
        self.higher_is_better = metric.higher_is_better  # type: ignore[misc]
        self._metric = metric
        self._counts: dict[tuple[str, ...], Any] = {}

    def check(self, references: Sequence[Sequence[str]]) -> None:
        self._metric.check(references)

    def scorer(self) -> Scorer:
        scorer = self._metric.scorer()
        count = scorer._extract_corpus_statistics

        def remembered(hypotheses: Sequence[str], references: Any) -> list[Any]:
            pairs = list(zip(hypotheses, *references, strict=True))
            new = list(dict.fromkeys(pair for pair in pairs if pair not in self._counts))
            if new:
                texts, *streams = zip(*new, strict=True)
                self._counts.update(zip(new, count(texts, streams), strict=True))
            scorer.num_refs = len(references)  # for the signature
            return [self._counts[pair] for pair in pairs]

        scorer._extract_corpus_statistics = remembered  # type: ignore[method-assign]
        return scorer
