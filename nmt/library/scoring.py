"""Shared by nmt-eval and `nmt.evaluate`: the metrics that users choose, and everything measured with them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nmt.errors import ConfigError, shown
from nmt.evaluation import Metric, build_metric, by_length, paired_test
from nmt.evaluation.metrics import counting
from nmt.evaluation.report import Result, System
from nmt.evaluation.significance import BOOTSTRAP, DEFAULT_SEED
from nmt.evaluation.significance import confidence as resampled
from nmt.registry import METRICS

DEFAULT_METRICS: Final = ("bleu", "chrf", "ter")


def chosen_metrics(
    names: Sequence[str], options: Mapping[str, Any], *, called: Mapping[str, str], language: str | None = None
) -> list[Metric]:
    """The requested metrics, each once, with those `options` that it has.

    `called`: gives the user's name of an option. `language`: language of the text, if known; the default of that
    option. Raises ConfigError for an unknown metric, and for an option that none of the metrics has.
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
        raise ConfigError(f"{listed}: no requested metric has this option; it belongs to {', '.join(having)}")
    return metrics


def target_of(pair: str, *, called: str) -> str:
    """The target language of a pair such as en-de; ConfigError, which says how the pair is `called`, for others."""
    found = re.fullmatch(r"[^-]+(?:-(?:[A-Z][a-z]{3}|[A-Z]{2}))*-(.+)", pair)  # the source may be zh-Hans, zh-CN
    if found is None:
        raise ConfigError(f"{called}: {shown(pair)} is not a language pair. Allowed: two codes, such as en-de.")
    return found[1]


def measured(
    metrics: Sequence[Metric],
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    baselines: Mapping[str, Sequence[str]],
    test: str = BOOTSTRAP,
    samples: int | None = None,
    seed: int = DEFAULT_SEED,
    confidence: bool = False,
    lengths: bool = False,
) -> list[System]:
    """The scores of each system, and its comparisons with each baseline except itself.

    With `confidence` also 95% intervals, with `lengths` scores by length. Without `baselines`, the first of several
    systems is the baseline.
    """
    if not baselines and len(systems) > 1:
        first = next(iter(systems))
        baselines = {first: systems[first]}
    found: dict[str, list[Result]] = {name: [] for name in systems}
    for metric in map(counting, metrics):
        for name, lines in systems.items():
            compared = [
                (
                    baseline,
                    paired_test(
                        metric, lines, baseline=others, references=references, test=test, samples=samples, seed=seed
                    ),
                )
                for baseline, others in baselines.items()
                if baseline != name or len(systems) == 1
            ]
            interval = resampled(metric, lines, references, samples=samples, seed=seed) if confidence else None
            buckets = by_length(metric, lines, references=references) if lengths else ()
            found[name].append(Result(metric.compute(lines, references), compared, buckets, interval))
    return [System(name, results) for name, results in found.items()]


def _options_of(member: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(member.Options)}
