"""Intervals of scores, and whether one system is better than another: sacreBLEU's tests, with less memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric as Scorer
from sacrebleu.significance import estimate_ci

from nmt.errors import ConfigError, refused
from nmt.evaluation.metrics import Metric, Score, check_streams

DEFAULT_SEED = 12345
DEFAULT_SAMPLES = 1000
"""Default number of resamples of the bootstrap."""
DEFAULT_TRIALS = 10_000
"""Of approximate randomisation."""
BOOTSTRAP: Final = "bootstrap"
APPROXIMATE: Final = "approximate"
TESTS: Final = (BOOTSTRAP, APPROXIMATE)
_PART = 1 << 22
"""Counts that are gathered at once."""


class Interval(NamedTuple):
    """A score with the results of resampling: true mean and half the width of its 95% interval."""

    score: float
    mean: float
    half_width: float


class Comparison(NamedTuple):
    """One system against one baseline by one metric."""

    system: Interval | None
    """None by approximate randomisation, which makes no intervals."""
    baseline: Interval | None
    p_value: float
    """Probability of so large a difference by chance."""
    signature: str
    """The metric's, with the seed and the number of samples."""
    baseline_score: float
    test: str = BOOTSTRAP
    """`bootstrap` or `approximate`."""
    samples: int = DEFAULT_SAMPLES


class Confidence(NamedTuple):
    """The 95% interval of one system's score."""

    interval: Interval
    signature: str
    """The metric's, with the seed and the number of resamples."""


def confidence(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    samples: int | None = None,
    seed: int = DEFAULT_SEED,
    sources: Sequence[str] | None = None,
) -> Confidence:
    """The 95% interval of a score by bootstrap resampling, as `sacrebleu --confidence` has it.

    Raises as `paired_test`.
    """
    samples = DEFAULT_SAMPLES if samples is None else samples
    _check_samples(samples, seed=seed)
    check_streams(hypotheses, references)
    scorer, counts = counted_by(metric, hypotheses, references, sources)
    interval = _interval(scorer, counts, _resampled(scorer, counts, samples=samples, seed=seed))
    return Confidence(interval, _signature(scorer, "bs", samples, seed))


def paired_test(
    metric: Metric,
    hypotheses: Sequence[str],
    *,
    baseline: Sequence[str],
    references: Sequence[Sequence[str]],
    test: str = BOOTSTRAP,
    samples: int | None = None,
    seed: int = DEFAULT_SEED,
    sources: Sequence[str] | None = None,
) -> Comparison:
    """Compare `hypotheses` with `baseline`, translations of the same source.

    By paired bootstrap resampling (Koehn, EMNLP 2004) or approximate randomisation (Riezler and Maxwell, 2005), whose
    `samples` are by default 1,000 resamples and 10,000 trials. The result is that of `sacrebleu --paired-bs` and
    `--paired-ar` for the same seed and number, except for the p-value of two equal scores, which is 1.

    Raises DataError for streams of different lengths, ConfigError for a metric without scores of sentences, an
    unknown test, and for a number of samples or seed below 1.
    """
    check_test(test)
    samples = (DEFAULT_SAMPLES if test == BOOTSTRAP else DEFAULT_TRIALS) if samples is None else samples
    _check_samples(samples, seed=seed)
    check_streams(hypotheses, references)
    check_streams(baseline, references)
    (scorer, first), (_, second) = (counted_by(metric, text, references, sources) for text in (baseline, hypotheses))
    scores = [float(scorer._aggregate_and_compute(counts).score) for counts in (first, second)]
    difference = abs(scores[0] - scores[1])
    intervals: tuple[Interval | None, Interval | None] = (None, None)
    if test == BOOTSTRAP:
        resampled = [_resampled(scorer, counts, samples=samples, seed=seed) for counts in (first, second)]
        intervals = (_interval(scorer, first, resampled[0]), _interval(scorer, second, resampled[1]))
        differences = np.abs(resampled[1] - resampled[0])
        differences -= differences.mean()
    else:
        differences = exchanged(scorer, first, second, trials=samples, seed=seed)
    # sacreBLEU counts the samples that differ by more than the outputs do, so two outputs that never
    # differ would come out as significantly different.
    p_value = 1.0 if difference == 0 else float(np.sum(differences > difference) + 1) / (samples + 1)
    signature = _signature(scorer, "bs" if test == BOOTSTRAP else "ar", samples, seed)
    return Comparison(intervals[1], intervals[0], p_value, signature, scores[0], test, samples)


def check_test(test: str) -> None:
    """Raise ConfigError for an unknown test."""
    if test not in TESTS:
        raise ConfigError(refused("significance", test, tuple(TESTS), problem="is not a known test"))


def _resampled(scorer: Scorer, counts: Sequence[Any], *, samples: int, seed: int) -> NDArray[np.float64]:
    """The scores of `samples` texts drawn of a text's sentences, with replacement, as sacreBLEU draws them."""
    drawn = np.random.default_rng(seed).choice(len(counts), size=(samples, len(counts)), replace=True)
    table = np.array(counts, dtype="float32")  # as sacreBLEU adds them up
    sums = (row.sum(0) for part in _parts(drawn, width=table.shape[1]) for row in table[part])
    return np.array([scorer._compute_score_from_stats(row).score for row in sums])


def exchanged(
    scorer: Scorer, first: Sequence[Any], second: Sequence[Any], *, trials: int, seed: int
) -> NDArray[np.float64]:
    """By how much two texts differ after each sentence has changed places with its partner, or has not, by chance."""
    kept = np.random.default_rng(seed).integers(2, size=(trials, len(first)), dtype=bool)
    tables = [np.array(counts, dtype=float) for counts in (first, second)]
    both = tables[0].sum(0) + tables[1].sum(0)
    change = tables[0] - tables[1]
    differences = []
    for part in _parts(kept, width=1):
        for row in tables[1].sum(0) + part.astype(float) @ change:
            pair = (scorer._compute_score_from_stats(counts.tolist()).score for counts in (row, both - row))
            differences.append(abs(next(pair) - next(pair)))
    return np.array(differences)


def _parts(table: NDArray[Any], *, width: int) -> Iterator[NDArray[Any]]:
    """The rows of a table, some at a time: as many as `width` counts for each of their elements allow."""
    rows = max(1, _PART // (table.shape[1] * width))
    for start in range(0, len(table), rows):
        yield table[start : start + rows]


class MeanScorer:
    """Stands for sacreBLEU's scorer where a score is the mean of those of sentences; the counts are the sum and 1."""

    def __init__(self, signature: str) -> None:
        self._signature = signature

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        return Score("", float(stats[0] / stats[1]), self._signature, True)

    def _aggregate_and_compute(self, counts: Sequence[Sequence[float]]) -> Score:
        return self._compute_score_from_stats(np.array(counts, dtype=float).sum(0).tolist())

    def get_signature(self) -> MeanScorer:
        """Itself, as it has both methods of a signature."""
        return MeanScorer(self._signature)

    def update(self, name: str, value: object) -> None:
        """Add a part to the signature."""
        self._signature += f"|{name}:{value}"

    def format(self) -> str:
        """The signature."""
        return self._signature


def counted_by(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] | None
) -> tuple[Any, list[Any]]:
    """A scorer, and what it adds up for each sentence; ConfigError for a metric that has no scores of sentences."""
    scorer = metric.scorer()
    if scorer is not None:
        return scorer, scorer._extract_corpus_statistics(hypotheses, references)
    score = metric.score(hypotheses, references, sources=sources)
    if score.segments is None:
        raise ConfigError(f"metric {metric.name!r} has no scores of sentences (Score.segments) and cannot be resampled")
    return MeanScorer(score.signature), [[float(value), 1.0] for value in score.segments]


def _check_samples(samples: int, *, seed: int) -> None:
    if samples < 1 or seed < 1:
        raise ConfigError(f"samples ({samples}) and seed ({seed}) must be at least 1")


def _interval(scorer: Scorer, counts: list[list[Any]], resampled: NDArray[np.float64]) -> Interval:
    mean, half_width = estimate_ci(resampled)
    return Interval(float(scorer._aggregate_and_compute(counts).score), float(mean), float(half_width))


def _signature(scorer: Scorer, kind: str, samples: int, seed: int) -> str:
    """The metric's, with the seed and the number of samples in their places."""
    signature = scorer.get_signature()
    signature.update("seed", str(seed))
    signature.update(kind, samples)
    return signature.format()
