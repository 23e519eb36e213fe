"""Beam search and greedy search as functions of a batch, with Zero's candidates, scores, limits and stopping rules."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor

from nmt.errors import ConfigError, refused
from nmt.search.base import GreedySearch, Settings
from nmt.search.beam import by_beam
from nmt.search.ruled import SearchModel, SearchState
from nmt.search.values import Hypothesis

S = TypeVar("S", bound=SearchState)
Stopping = Literal["sentence", "batch"]


@torch.inference_mode()
def beam_search(
    model: SearchModel[S],
    source: Tensor,
    *,
    beam_size: int,
    length_penalty: float,
    max_length_offset: int,
    stopping: Stopping = "sentence",
    n_best: int | None = None,
    coverage_penalty: float = 0.0,
) -> list[list[Hypothesis]]:
    """Search the best translations of a batch, with Zero's candidates, scores and stopping rule.

    A sentence of n tokens (EOS counted) gets at most L = n + max_length_offset tokens. It is finished after L steps, or
    when its worst finished hypothesis is better than the best score that the best alive one could still reach:
    log-probability / ((5 + L) / 6) ** alpha. If nothing has finished by then, the alive hypotheses are the result. A
    hypothesis with a NaN or infinite log-probability is dropped.

    stopping="sentence" gives each sentence exactly Zero's result for a batch of this sentence alone, whatever else is
    in the batch; finished sentences leave the batch. The one difference: PAD is never generated (its probability is not
    given to the others). stopping="batch" is Zero's joint rule: all sentences continue until all are finished,
    sentences that reach their own L earlier are cut there, and PAD may be generated. It exists for comparison.

    Args:
        model: anything with `start` and `best`; must be in evaluation mode.
        source: ids [B, S], each row ending with EOS and filled with PAD.
        beam_size: K >= 1.
        length_penalty: alpha of the score, log-probability / ((5 + length) / 6) ** alpha, EOS counted.
        max_length_offset: tokens that a translation may have more than its source.
        stopping: see above.
        n_best: hypotheses returned for each sentence; default K.
        coverage_penalty: beta; the penalty by `CoveringModel` is added to the scores of finished hypotheses, and of
            hypotheses cut by their limit. Alive ones are ranked without it. The model must have its `attending_step`
            then.

    Returns:
        For each sentence its hypotheses, best first, ids cut before the first EOS or PAD. There can be fewer than
        n_best (empty slots are left out), but there is always one; if none has a finite score, it is marked by
        `is_finite`.
    """
    if stopping not in ("sentence", "batch"):
        raise ConfigError(refused("stopping", stopping, ("sentence", "batch")))
    settings = Settings(
        beam_size=beam_size,
        length_penalty=length_penalty,
        max_length_offset=max_length_offset,
        n_best=n_best,
        coverage_penalty=coverage_penalty,
    )
    return by_beam(model, source, settings, joint=stopping == "batch")


@torch.inference_mode()
def greedy_search(
    model: SearchModel[S],
    source: Tensor,
    *,
    length_penalty: float,
    max_length_offset: int,
    beam_size: int = 1,
    n_best: int | None = None,
    scores: bool = True,
) -> list[list[Hypothesis]]:
    """Follow the most probable token until the end symbol, for a batch of sentences.

    Not the same as a beam of one: Zero's beam of one keeps a finished hypothesis and continues the best unfinished one
    as long as that could still be better. Greedy search ends at its first end symbol. Limits, first step and scores are
    those of `beam_search`; sentences that have ended leave the batch; the padding symbol is never chosen.

    Args:
        model, source, length_penalty, max_length_offset: as in `beam_search`.
        beam_size, n_best: part of the common signature; must be 1, else ConfigError.
        scores: without them all scores are NaN, and the logits need not be normalised.

    Returns:
        For each sentence a list of one hypothesis.
    """
    if beam_size != 1 or n_best not in (None, 1):
        raise ConfigError(f"greedy search has one hypothesis, not beam_size {beam_size} and n_best {n_best}")
    settings = Settings(length_penalty=length_penalty, max_length_offset=max_length_offset, scores=scores)
    return GreedySearch().found(cast("Any", model), source, settings)
