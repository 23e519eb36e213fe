"""Scores of translations: metrics with signatures, significance, reports."""

from nmt.evaluation.metrics import Metric as Metric
from nmt.evaluation.metrics import SacrebleuMetric as SacrebleuMetric
from nmt.evaluation.metrics import Score as Score
from nmt.evaluation.metrics import build_metric as build_metric
from nmt.evaluation.metrics import build_metrics as build_metrics
from nmt.evaluation.metrics import check_subwords as check_subwords
from nmt.evaluation.significance import Comparison as Comparison
from nmt.evaluation.significance import paired_test as paired_test
