"""Greedy search: the most probable token at every step."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError
from nmt.ops.matrices.best_words import Choice
from nmt.registry import SEARCHES
from nmt.search.base import Search, Settings, rows_to_keep
from nmt.search.ruled import RuledModel, SearchModel, SearchState
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis, cut, penalty_of

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig

S = TypeVar("S", bound=SearchState)


class Path(NamedTuple):
    """The only hypothesis of each of the B sentences searched, of t tokens so far."""

    sentences: Tensor
    """Places of these sentences in the batch [B]."""
    active: Tensor
    """False for a finished sentence, which stays only until the batch is cut [B]."""
    limits: Tensor
    """Longest translations in tokens [B]."""
    ids: Tensor
    """[B, t]"""
    totals: Tensor
    """Sums of the values of the chosen tokens [B]: log-probabilities, or logits if scores are not needed."""

    def select(self, rows: Tensor) -> Path:
        """Some of the sentences."""
        return Path(*(field.index_select(0, rows) for field in self))


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
        model: anything with `start` and `best`; must be in evaluation mode.
        source: ids [B, S], each row ending with EOS and filled with PAD.
        length_penalty: alpha of the score, log-probability / ((5 + length) / 6) ** alpha.
        max_length_offset: tokens that a translation may have more than its source (with EOS).
        beam_size, n_best: part of the common signature; must be 1, else ConfigError.
        scores: without them all scores are NaN, and the logits need not be normalised.

    Returns:
        For each sentence a list of one hypothesis.
    """
    if beam_size != 1 or n_best not in (None, 1):
        raise ConfigError(f"greedy search has one hypothesis, not beam_size {beam_size} and n_best {n_best}")
    settings = Settings(length_penalty=length_penalty, max_length_offset=max_length_offset, scores=scores)
    return _search(model, source, settings)


def _search(model: SearchModel[S], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
    results: list[list[Hypothesis]] = [[]] * len(source)
    if not results:
        return results
    sentences = torch.arange(len(source), device=source.device)
    path = Path(
        sentences,
        active=torch.ones_like(sentences, dtype=torch.bool),
        limits=(source != PAD).sum(dim=1) + settings.max_length_offset,
        ids=source.new_empty(len(source), 0),
        totals=torch.zeros(len(source), device=source.device),
    )
    state = model.start(source)
    for t in itertools.count():
        done = path.active & (t >= path.limits if t == 0 else (path.ids[:, -1] == EOS) | (t >= path.limits))
        if bool(done.any()):
            _collect(results, path.select(done.nonzero().squeeze(1)), settings)
            path = path._replace(active=path.active & ~done)
            rows = rows_to_keep(path.active)
            if rows is not None:
                if not len(rows):
                    return results
                path, state = path.select(rows), state.keep(rows)
        wanted = Choice(
            1, normalize=settings.scores, banned=PAD, penalised=None if t else EOS, penalty=FIRST_EOS_PENALTY
        )
        best, state = model.best(path.ids[:, -1] if t else None, state, wanted)
        ids = torch.cat([path.ids, best.words], dim=1)
        path = path._replace(ids=ids, totals=path.totals + best.values.squeeze(1))
    raise AssertionError("every sentence has a limit")


@SEARCHES.register("greedy")
class GreedySearch(Search):
    """The most probable token at every step, up to the first end symbol."""

    only_beam_size = 1

    @classmethod
    def check(cls, decoding: DecodingConfig) -> list[tuple[str, str]]:
        if decoding.beam_size == 1:
            return []
        return [("search", f"'greedy' follows one hypothesis: beam_size must be 1, not {decoding.beam_size}")]

    @classmethod
    def largest_n_best(cls, decoding: DecodingConfig) -> int:
        return 1

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        return _search(model, source, settings)


def _collect(results: list[list[Hypothesis]], path: Path, settings: Settings) -> None:
    """Write down the sentences that have ended."""
    penalty = penalty_of(path.ids.shape[1], settings.length_penalty) if settings.scores else math.nan
    for sentence, tokens, total in zip(path.sentences.tolist(), path.ids.tolist(), path.totals.tolist(), strict=True):
        found = Hypothesis(cut(tokens), total / penalty, has_ended=EOS in tokens, is_finite=math.isfinite(total))
        results[sentence] = [found]
