"""Diverse beam search: the beam is split into groups, and each is penalised for words chosen by the groups before
it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor

from nmt.config.options import check_options
from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError
from nmt.ops.matrices.best_words import BestWords, Choice
from nmt.registry import SEARCHES
from nmt.search.base import Search, Settings, rows_to_keep
from nmt.search.beam import (
    Beam,
    advance,
    are_done,
    candidates_of,
    collect,
    empty_beam,
    gather_ids,
    last_tokens,
    rows_of,
)
from nmt.search.coverage import CoveringModel
from nmt.search.ruled import RuledModel, SearchModel, SearchState
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis, penalty_of

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig

S = TypeVar("S", bound=SearchState)


@torch.inference_mode()
def diverse_beam_search(
    model: SearchModel[S],
    source: Tensor,
    *,
    groups: int,
    diversity: float,
    beam_size: int,
    length_penalty: float,
    max_length_offset: int,
    n_best: int | None = None,
    coverage_penalty: float = 0.0,
) -> list[list[Hypothesis]]:
    """Beam search in G groups of K / G hypotheses (Vijayakumar et al., 2018, with the Hamming diversity).

    At each step the groups choose one after the other. From the value of a word, `diversity` is subtracted for each
    hypothesis of the earlier groups that has just been continued with it. The penalised values decide the continuations
    of a group; the scores are the model's own. The end symbol is never penalised: translations need not have different
    lengths. Each group has the limits and the stopping rule of `beam_search`, and the sentence is done when all groups
    are. One group is `beam_search`.

    Args:
        model, source, length_penalty, max_length_offset, coverage_penalty: as in `beam_search`.
        groups: G, which must divide beam_size.
        diversity: the strength, lambda in the paper, 0 or more.
        beam_size: K, hypotheses of all groups together.
        n_best: hypotheses returned for each sentence; default K.

    Returns:
        For each sentence the hypotheses of all groups, each once, best first: the finished ones, or the cut ones if no
        group has a finished one.
    """
    settings = Settings(
        beam_size=beam_size,
        length_penalty=length_penalty,
        max_length_offset=max_length_offset,
        n_best=n_best,
        coverage_penalty=coverage_penalty,
    )
    return _by_groups(model, source, settings, groups=groups, diversity=diversity)


def _by_groups(
    model: SearchModel[S], source: Tensor, settings: Settings, *, groups: int, diversity: float
) -> list[list[Hypothesis]]:
    beam_size, alpha, n_best = settings.beam_size, settings.length_penalty, settings.n_best
    if groups < 1 or beam_size % groups:
        raise ConfigError(f"groups: {groups} groups cannot share a beam of {beam_size}; it must be a multiple of them")
    results: list[list[Hypothesis]] = [[] for _ in range(source.shape[0])]
    if not results:
        return results
    size = beam_size // groups
    wanted = size if n_best is None else min(n_best, size)
    # A group is treated as a sentence with a smaller beam: B * G sentences, with the groups of one sentence adjacent.
    beam = empty_beam(source.repeat_interleave(groups, 0), beam_size=size, max_length_offset=settings.max_length_offset)
    covered: Any = (
        CoveringModel(cast("Any", model), strength=settings.coverage_penalty) if settings.coverage_penalty else None
    )
    model = model if covered is None else covered
    state = model.start(source)
    for t in itertools.count():
        done = are_done(beam, t, alpha=alpha, joint=False, n_best=wanted).view(-1, groups).all(1)
        done &= beam.active.view(-1, groups)[:, 0]
        if bool(done.any()):
            ended = _groups_of(done.nonzero().squeeze(1), groups)
            extra = None if covered is None else covered.penalties(state).view(-1, size)[ended]
            _collect(results, beam.select(ended), t, groups=groups, alpha=alpha, n_best=n_best, extra=extra)
            beam = beam._replace(active=beam.active & ~done.repeat_interleave(groups))
            rows = rows_to_keep(beam.active.view(-1, groups)[:, 0])
            if rows is not None:
                if not len(rows):
                    break
                beam, state = beam.select(_groups_of(rows, groups)), state.keep(rows)
        best, state = model.best(last_tokens(beam, joint=False), state, _choice(beam, t, groups=groups))
        extra = None if covered is None else covered.penalties(state)
        if not t:  # the groups begin with the same hypothesis
            best = BestWords(*(part.repeat_interleave(groups, 0) for part in best))
            extra = None if extra is None else extra.repeat_interleave(groups, 1)
        beam, beams = _advance_groups(beam, best, t, groups=groups, diversity=diversity, alpha=alpha, extra=extra)
        state = state.reorder(rows_of(beams)) if t else state.expand(beam_size)
    return results


@dataclass(frozen=True, kw_only=True)
class DiverseOptions:
    """Options of `diverse_beam`."""

    groups: int = 2
    """Groups that the beam is divided into; beam_size must be a multiple. 1 is `beam`."""
    diversity: float = 0.5
    """Taken from the log-probability of a word for each hypothesis of the groups before that has chosen it at this
    step; 0 makes all groups equal."""

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"groups: must be 1 or more, not {self.groups}")
        if self.diversity < 0:
            raise ValueError(f"diversity: must be 0 or more, not {self.diversity:g}")


@SEARCHES.register("diverse_beam")
class DiverseBeamSearch(Search):
    """Beam search in groups that avoid each other's words (Vijayakumar et al., 2018), for n-best lists that differ."""

    Options = DiverseOptions
    accepts = frozenset({"coverage_penalty"})

    @classmethod
    def check(cls, decoding: DecodingConfig) -> list[tuple[str, str]]:
        options, wrong = check_options(cls, decoding.search_options, key="")
        if wrong or decoding.beam_size % options.groups == 0:
            return []
        message = f"must be a multiple of the {options.groups} groups of 'diverse_beam', not {decoding.beam_size}"
        return [("beam_size", message)]

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        options = self.options
        return _by_groups(model, source, settings, groups=options.groups, diversity=options.diversity)


def _choice(beam: Beam, t: int, *, groups: int) -> Choice:
    """The best continuations of each group, as many as it can need.

    The 2K' best of a group of K' by penalised values are among its 2K' + P best by the model's, if P continuations at
    most are penalised: of those that come before one of them by the model's values, at least 2K' are not. A word is
    penalised in each of the K' hypotheses, and no more words are than the groups before have hypotheses.
    """
    size = beam.log_probs.shape[1]
    alive = size if t else 1
    return Choice(
        2 * size + (groups - 1) * size * alive,
        before=beam.log_probs if t else beam.log_probs[::groups, :1],
        banned=PAD,
        penalised=None if t else EOS,
        penalty=FIRST_EOS_PENALTY,
    )


def _advance_groups(
    beam: Beam, best: BestWords, t: int, *, groups: int, diversity: float, alpha: float, extra: Tensor | None
) -> tuple[Beam, Tensor]:
    """The beam with one more token, group after group, and which hypothesis [B, K] each alive one continues.

    `extra` [B, K], at first [B, G], is added to the score of what ends.
    """
    size = beam.log_probs.shape[1]
    extras = [None] * groups if extra is None else extra.unflatten(1, (groups, -1)).unbind(1)
    advanced, chosen = [], []
    used = best.words.new_empty(len(beam.log_probs) // groups, 0)  # the words chosen by the groups before
    for group in range(groups):
        own = Beam(*(field[group::groups] for field in beam))
        found = BestWords(*(field[group::groups] for field in best))
        found = _first(found, 2 * size, used, diversity=diversity) if group else _cut(found, 2 * size)
        candidates = candidates_of(found, own, t)
        own, beams = advance(own, candidates, penalty=penalty_of(t + 1, alpha), extra=extras[group])
        if group:  # chosen by penalised values, and now in the order of the others
            order = own.log_probs.sort(dim=1, descending=True, stable=True).indices
            own = own._replace(log_probs=own.log_probs.gather(1, order), ids=gather_ids(own.ids, order))
            beams = beams.gather(1, order)
        used = torch.cat([used, own.ids[:, :, -1].masked_fill(own.log_probs.isneginf(), PAD)], dim=1)
        advanced.append(own)
        chosen.append(beams + group * size)
    merged = Beam(*(torch.stack(fields, 1).flatten(0, 1) for fields in zip(*advanced, strict=True)))
    return merged, torch.cat(chosen, dim=1)


def _first(found: BestWords, count: int, used: Tensor, *, diversity: float) -> BestWords:
    """The candidates of a group sorted by penalised values; the returned values are the model's own."""
    times = (found.words.unsqueeze(2) == used.unsqueeze(1)).sum(2).masked_fill(found.words == EOS, 0)
    values = found.values.nan_to_num(nan=-math.inf) - diversity * times
    order = values.sort(dim=1, descending=True, stable=True).indices[:, :count]
    return BestWords(*(field.gather(1, order) for field in found))


def _cut(found: BestWords, count: int) -> BestWords:
    return BestWords(*(field[:, :count] for field in found))


def _collect(
    results: list[list[Hypothesis]],
    beam: Beam,
    t: int,
    *,
    groups: int,
    alpha: float,
    n_best: int | None,
    extra: Tensor | None,
) -> None:
    """Write down all hypotheses of the groups of sentences that are done, each once, best first."""
    ordered = beam._replace(sentences=torch.arange(len(beam.sentences), device=beam.sentences.device))
    by_group: list[list[Hypothesis]] = [[] for _ in range(len(beam.sentences))]
    collect(by_group, ordered, t, alpha=alpha, n_best=None, extra=extra)
    for start, sentence in enumerate(beam.sentences[::groups].tolist()):
        found = [one for group in by_group[start * groups : (start + 1) * groups] for one in group]
        usable = [one for one in found if one.is_finite and one.has_ended] or [one for one in found if one.is_finite]
        distinct = {tuple(one.ids): one for one in sorted(usable, key=lambda one: one.score)}
        best_first = sorted(distinct.values(), key=lambda one: -one.score)
        results[sentence // groups] = best_first[:n_best] or found[:1]


def _groups_of(sentences: Tensor, groups: int) -> Tensor:
    """The places of the groups of these sentences [B'] among all groups [B' * G]."""
    return (sentences.unsqueeze(1) * groups + torch.arange(groups, device=sentences.device)).flatten()
