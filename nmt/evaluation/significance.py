"""Is one system better than another? Paired bootstrap resampling, by sacreBLEU's own module."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sacrebleu.significance import PairedTest

from nmt.errors import ConfigError
from nmt.evaluation.metrics import Metric, check_streams

SEED_VARIABLE = "SACREBLEU_SEED"
DEFAULT_SEED = 12345
DEFAULT_SAMPLES = 1000
_environment = threading.Lock()


class Interval(NamedTuple):
    """A score with what resampling says of it: true mean and half the width of its 95% interval."""

    score: float
    mean: float
    half_width: float


class Comparison(NamedTuple):
    """One system against one baseline by one metric."""

    system: Interval
    baseline: Interval
    p_value: float
    """Probability of so large a difference by chance."""
    signature: str
    """The metric's, with the seed and the number of resamples."""


@contextmanager
def _seed_in_environment(seed: int) -> Iterator[None]:
    """PairedTest takes its seed from the environment and from nowhere else; other threads wait."""
    with _environment:
        before = os.environ.get(SEED_VARIABLE)
        os.environ[SEED_VARIABLE] = str(seed)
        try:
            yield
        finally:
            if before is None:
                del os.environ[SEED_VARIABLE]
            else:
                os.environ[SEED_VARIABLE] = before


def paired_bootstrap(
    metric: Metric,
    hypotheses: Sequence[str],
    *,
    baseline: Sequence[str],
    references: Sequence[Sequence[str]],
    samples: int = DEFAULT_SAMPLES,
    seed: int = DEFAULT_SEED,
) -> Comparison:
    """Compare `hypotheses` with `baseline`, translations of the same source (Koehn, EMNLP 2004).

    The result is that of `sacrebleu --paired-bs` for the same seed and number of `samples`, but for the
    p-value of two equal scores, which is 1. Raises DataError for streams of different lengths, ConfigError
    for a metric that is not sacreBLEU's and for a number of samples or seed below 1 (sacreBLEU takes 0 to
    mean its default, or no seed).
    """
    scorer = metric.scorer()
    if scorer is None:
        raise ConfigError(f"metric {metric.name!r} is not one of sacreBLEU's and cannot be resampled")
    if samples < 1 or seed < 1:
        raise ConfigError(f"samples ({samples}) and seed ({seed}) must be at least 1")
    check_streams(hypotheses, references)
    check_streams(baseline, references)
    with _seed_in_environment(seed):
        test = PairedTest(
            [("baseline", baseline), ("system", hypotheses)],
            {metric.name: scorer},
            references,
            test_type="bs",
            n_samples=samples,
        )
        signatures, columns = test()
    (name,) = signatures
    columns_of_metric: Sequence[Any] = columns[name]
    first, second = columns_of_metric
    # sacreBLEU counts the samples that differ by more than the outputs do, so two outputs that never
    # differ would come out as significantly different.
    p_value = 1.0 if first.score == second.score else float(second.p_value)
    return Comparison(_interval(second), _interval(first), p_value, signatures[name].format())


def _interval(result: Any) -> Interval:
    return Interval(float(result.score), float(result.mean), float(result.ci))
