"""Whether two systems, each trained with several seeds, differ by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from nmt.evaluation import build_metric
from nmt.evaluation.significance import MeanScorer, exchanged
from nmt.experiments.records import Scored
from nmt.registry import METRICS

TRIALS: Final = 10_000
SEED: Final = 12345
_PART = 1 << 23
"""Random numbers drawn at once."""


def p_value(
    first: Sequence[Scored], second: Sequence[Scored], *, trials: int = TRIALS, seed: int = SEED
) -> float | None:
    """Stratified approximate randomisation (Clark et al., ACL 2011) of the runs of two systems; None without counts.

    In each trial the translations of each sentence, those of all runs, are dealt anew to the two systems, as many to
    each as it has runs. The p-value is the share of the trials in which the scores of the two systems, each of the
    translations of all its runs together, differ by more than they do. With one run each it is that of
    `nmt-eval --significance approximate`.
    """
    counts = [[one.counts for one in runs if one.counts is not None] for runs in (first, second)]
    if len(counts[0]) < len(first) or len(counts[1]) < len(second):
        return None
    scorer: Any = None
    metric = first[0].metric.partition("@")[0]
    if METRICS.known(metric) is not None:  # that of a plugin may not be here, and is a mean
        scorer = build_metric(metric, first[0].options).scorer()
    scorer = scorer or MeanScorer(first[0].signature)
    tables = [np.stack(own) for own in counts]  # each [R, N, C]
    sums = [table.sum((0, 1)) for table in tables]
    observed = abs(_difference(scorer, *sums))
    if observed == 0:
        return 1.0
    if len(first) == len(second) == 1:
        differences = exchanged(scorer, list(tables[0][0]), list(tables[1][0]), trials=trials, seed=seed)
    else:
        rows = np.concatenate(tables).transpose(1, 0, 2)  # [N, R, C]
        differences = _dealt(scorer, rows, len(first), trials=trials, seed=seed)
    return float(np.sum(differences > observed) + 1) / (trials + 1)


def _dealt(scorer: Any, rows: NDArray[np.float64], runs: int, *, trials: int, seed: int) -> NDArray[np.float64]:
    """The differences where `runs` of the rows of each sentence go to the first system."""
    generator, (sentences, all_runs, width) = np.random.default_rng(seed), rows.shape
    flat, total = rows.reshape(sentences * all_runs, width), rows.sum((0, 1))
    each = max(1, _PART // (sentences * all_runs))
    differences = []
    for start in range(0, trials, each):
        drawn = generator.random((min(each, trials - start), sentences, all_runs))
        limit = np.partition(drawn, runs - 1, axis=2)[:, :, runs - 1 : runs]
        own = (drawn <= limit).reshape(len(drawn), -1).astype(np.float64) @ flat  # [trials, C]
        differences += [abs(_difference(scorer, row, total - row)) for row in own]
    return np.array(differences)


def _difference(scorer: Any, first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    scores = [float(scorer._compute_score_from_stats(row.tolist()).score) for row in (first, second)]
    return scores[0] - scores[1]
