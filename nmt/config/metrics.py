"""The entries of `evaluation.metrics`: a metric by its name, or a mapping of its name to its options."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from nmt.config.options import check_options
from nmt.config.problems import Problem
from nmt.registry import METRICS

KEY = "evaluation.metrics"

Entry = str | dict[Any, Any]


class MetricChoice(NamedTuple):
    """A metric by its name in the registry, and the options given for it."""

    name: str
    options: Mapping[str, Any]


def metric_choices(entries: Iterable[Entry]) -> list[MetricChoice]:
    """The metrics that the entries ask for, in order; `{name: null}` has no options."""
    return [
        MetricChoice(name, {} if options is None else options)
        for entry in entries
        for name, options in ({entry: None} if isinstance(entry, str) else entry).items()
    ]


def complete_metrics(entries: Iterable[Entry]) -> tuple[list[Entry], list[Problem]]:
    """Look the metrics up, check their options and write the defaults of these into the entries that have options.

    A name may be there once only: logs and `early_stopping_metric` know scores by it.
    """
    entries, completed, problems = list(entries), list[Entry](), list[Problem]()
    for entry in entries:
        if isinstance(entry, dict) and len(entry) != 1:
            problems.append(Problem(KEY, f"{entry!r} is not one metric with its options; each has an entry of its own"))
            completed.append(entry)
            continue
        ((name, options),) = metric_choices([entry])
        built, wrong = _checked(name, options)
        problems += wrong
        with_options = isinstance(entry, dict) and built is not None
        completed.append({name: dataclasses.asdict(built)} if with_options else entry)
    for name, count in Counter(choice.name for choice in metric_choices(entries)).items():
        if count > 1:
            problems.append(Problem(KEY, f"'{name}' is there {count} times, but scores are told apart by these names"))
    return completed, problems


def _checked(name: str, options: Any) -> tuple[Any, list[Problem]]:
    """The options of a metric, None where something is wrong, and what is."""
    if name not in METRICS.names():
        return None, [Problem(KEY, METRICS.unknown(name), component=True)]
    key = f"{KEY}.{name}"
    if not isinstance(options, Mapping):
        return None, [Problem(key, f"{options!r} is not a mapping of options to values")]
    return check_options(METRICS.get(name), options, key=key)
