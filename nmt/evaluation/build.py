"""Metrics by name, with their options and what they should know of the text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from nmt.config import component_options
from nmt.config.chosen import choices
from nmt.config.schema import EvaluationConfig
from nmt.errors import ConfigError
from nmt.evaluation.metrics import Metric
from nmt.registry import METRICS

LANGUAGE = "language"


def build_metric(name: str, options: Mapping[str, Any] | None = None, *, language: str | None = None) -> Metric:
    """The metric registered as `name`; `language`, of the text, is for those with such an option that is not set.

    Raises ConfigError for an unknown name, wrong options, or something that is not installed.
    """
    member = METRICS.get(name)
    chosen = component_options(member, options or {}, key=name)
    names = {field.name for field in dataclasses.fields(chosen)}
    if LANGUAGE in names and getattr(chosen, LANGUAGE) is None:
        chosen = dataclasses.replace(chosen, **{LANGUAGE: language})
    try:
        metric: Metric = member(options=chosen)
    except ConfigError as error:
        raise ConfigError(f"metric {name}: {error}") from error
    return metric


def build_metrics(evaluation: EvaluationConfig, *, language: str | None) -> list[Metric]:
    """The metrics that a configuration chooses, each able to score; ConfigError for what is not installed."""
    metrics = []
    for name, options in choices(evaluation.metrics):
        metrics.append(build_metric(name, options, language=language))
        metrics[-1].scorer()  # fails without a package or file that a tokenizer needs
    return metrics
