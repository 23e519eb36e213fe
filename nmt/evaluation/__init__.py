"""Scores of translations: metrics with signatures, significance, scores by length, reports."""

from nmt.evaluation.build import build_metric, build_metrics
from nmt.evaluation.by_length import LengthBucket, by_length
from nmt.evaluation.metrics import Metric, SacrebleuMetric, Score
from nmt.evaluation.moses import BleuMosesLowercase
from nmt.evaluation.significance import Comparison, paired_test
from nmt.evaluation.subwords import check_subwords

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
