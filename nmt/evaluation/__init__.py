"""Scores of translations: metrics with signatures, significance, scores by length, reports."""

from nmt.evaluation.by_length import LengthBucket, by_length
from nmt.evaluation.metrics import Metric, SacrebleuMetric, Score
from nmt.evaluation.significance import Comparison, paired_bootstrap

__all__ = ["Comparison", "LengthBucket", "Metric", "SacrebleuMetric", "Score", "by_length", "paired_bootstrap"]
