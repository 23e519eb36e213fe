"""Metrics as users choose them, and all that is measured with one: what nmt-eval and `nmt.evaluate` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nmt.errors import ConfigError
from nmt.evaluation import Metric, build_metric, by_length, paired_bootstrap
from nmt.evaluation.report import Result
from nmt.registry import METRICS

DEFAULT_METRICS: Final = ("bleu", "chrf", "ter")


def chosen_metrics(
    names: Sequence[str], options: Mapping[str, Any], *, called: Mapping[str, str], language: str | None = None
) -> list[Metric]:
    """The metrics asked for, each once, with those of `options` that it has.

    `called`: what the user calls an option. `language`: of the text, where it is known and no option says otherwise.
    Raises ConfigError for an unknown metric, and for an option that none of them has.
    """
    unused = set(options)
    metrics = []
    for name in dict.fromkeys(names):
        known = _options_of(METRICS.get(name))
        own = {key: value for key, value in options.items() if key in known}
        unused -= set(own)
        metrics.append(build_metric(name, own, language=language))
    if unused:
        listed = ", ".join(called[name] for name in sorted(unused))
        having = [name for name in METRICS.names() if unused & _options_of(METRICS.get(name))]
        raise ConfigError(f"{listed}: none of the metrics asked for has this option; {', '.join(having)} has")
    return metrics


def measured(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    baselines: Sequence[tuple[str, Sequence[str]]],
    samples: int,
    seed: int,
    lengths: bool,
) -> Result:
    """The score, the comparison with each baseline by `samples` resamples, and with `lengths` the scores by length."""
    score = metric.compute(hypotheses, references)
    compared = [
        (
            name,
            paired_bootstrap(metric, hypotheses, baseline=lines, references=references, samples=samples, seed=seed),
        )
        for name, lines in baselines
    ]
    return Result(score, compared, by_length(metric, hypotheses, references=references) if lengths else ())


def _options_of(member: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(member.Options)}
