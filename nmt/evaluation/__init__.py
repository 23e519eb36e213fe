"""Scores of translations: metrics with signatures, significance, scores by length, reports."""

from nmt.evaluation.metrics import (
    BleuMosesLowercase,
    LengthBucket,
    Metric,
    SacrebleuMetric,
    Score,
    build_metric,
    build_metrics,
    by_length,
    check_subwords,
)
from nmt.evaluation.significance import Comparison, paired_test

__all__ = [
    "BleuMosesLowercase",
    "Comparison",
    "LengthBucket",
    "Metric",
    "SacrebleuMetric",
    "Score",
    "build_metric",
    "build_metrics",
    "by_length",
    "check_subwords",
    "paired_test",
]
