"""Greedy search: the most probable token at every step."""

from __future__ import annotations

import itertools
import math
from typing import TypeVar

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError
from nmt.registry import SEARCHES
from nmt.search.hypothesis import FIRST_EOS_PENALTY, Hypothesis, cut, penalty_of
from nmt.search.protocol import SearchModel, SearchState
from nmt.search.top import log_probabilities

S = TypeVar("S", bound=SearchState)


@SEARCHES.register("greedy")
@torch.inference_mode()
def greedy_search(
    model: SearchModel[S],
    source: Tensor,
    *,
    length_penalty: float,
    max_length_offset: int,
    beam_size: int = 1,
    n_best: int | None = None,
) -> list[list[Hypothesis]]:
    """Follow the most probable token until the end symbol, for a batch of sentences.

    Not the same as a beam of one: Zero's beam of one keeps a finished hypothesis and goes on with
    the best unfinished one as long as that could still overtake. Greedy search ends at its first
    end symbol. Limits, first step and scores are those of `beam_search`; sentences that have
    ended leave the batch; the padding symbol is never chosen.

    Args:
        model: anything with `start` and `step`.
        source: ids [B, S], each row ending with EOS and filled with PAD.
        length_penalty: alpha of the score, log-probability / ((5 + length) / 6) ** alpha.
        max_length_offset: tokens that a translation may have more than its source (with EOS).
        beam_size, n_best: here for the sake of a common signature; 1 or ConfigError.

    Returns:
        For each sentence a list of one hypothesis.
    """
    if beam_size != 1 or n_best not in (None, 1):
        raise ConfigError(f"greedy search has one hypothesis, not beam_size {beam_size} and n_best {n_best}")
    if not source.shape[0]:
        return []
    limits = (source != PAD).sum(dim=1) + max_length_offset
    results: list[list[Hypothesis]] = [[] for _ in range(source.shape[0])]
    sentences = torch.arange(source.shape[0], device=source.device)
    ids = source.new_empty(source.shape[0], 0)
    scores = torch.zeros(source.shape[0], device=source.device)
    state = model.start(source)
    for t in itertools.count():
        done = t >= limits if t == 0 else (ids[:, -1] == EOS) | (t >= limits)
        if bool(done.any()):
            _collect(results, sentences[done], ids[done], scores[done], length_penalty)
            left = (~done).nonzero().squeeze(1)
            if not len(left):
                return results
            sentences, limits, ids, scores = sentences[left], limits[left], ids[left], scores[left]
            state = state.keep(left)
        logits, state = model.step(ids[:, -1] if t else None, state)
        log_probs = log_probabilities(logits)
        log_probs[:, PAD] = -math.inf
        if t == 0:
            log_probs[:, EOS] -= FIRST_EOS_PENALTY
        best, tokens = log_probs.max(dim=1)
        ids = torch.cat([ids, tokens.unsqueeze(1)], dim=1)
        scores = scores + best
    return results


def _collect(results: list[list[Hypothesis]], sentences: Tensor, ids: Tensor, scores: Tensor, alpha: float) -> None:
    """Write down the sentences that have ended."""
    penalty = penalty_of(ids.shape[1], alpha)
    for sentence, tokens, score in zip(sentences.tolist(), ids.tolist(), scores.tolist(), strict=True):
        results[sentence] = [Hypothesis(ids=cut(tokens), score=score / penalty)]
