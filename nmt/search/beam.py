"""Beam search as in Zero, for a batch of sentences, in small steps.

B sentences, K hypotheses (beams) each, V target words, t tokens so far.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.ops.matrices.best_words import BestWords, Choice
from nmt.registry import CONSTRAINED_SEARCHES, SEARCHES
from nmt.search.base import LENGTHS, Search, Settings, limits_of, rows_to_keep
from nmt.search.coverage import CoveringModel
from nmt.search.ruled import RuledModel, SearchModel, SearchState, Temperature
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis, cut

S = TypeVar("S", bound=SearchState)
Stopping = Literal["sentence", "batch"]


class Beam(NamedTuple):
    """All hypotheses of the sentences searched; an empty slot has -inf."""

    sentences: Tensor  # places of these sentences in the batch [B]
    active: Tensor  # false for a finished sentence, which stays only until the batch is cut [B]
    limits: Tensor  # longest translations in tokens [B]
    log_probs: Tensor  # log-probabilities of the unfinished (alive) hypotheses, best first [B, K]
    ids: Tensor  # tokens of the alive hypotheses [B, K, t]
    finished_scores: Tensor  # length-penalised scores of the finished hypotheses, best first [B, K]
    finished_ids: Tensor  # tokens of the finished hypotheses, filled with PAD [B, K, t]

    def select(self, rows: Tensor) -> Beam:
        """The beam of some of its sentences [B']."""
        return Beam(*(field.index_select(0, rows) for field in self))


class Groups:
    """How the hypotheses of a sentence are continued: all together. Other ways derive from it (`nmt.sampling`)."""

    count: int = 1
    """Groups of hypotheses of a sentence, each of which is searched as a sentence of its own; they end together."""

    def advanced(
        self, beam: Beam, best: BestWords, t: int, settings: Settings, extra: Tensor | None
    ) -> tuple[Beam, Tensor]:
        """`advance` of all groups, which stand side by side; `extra` [B, K], at first [B, 1]."""
        return advance(beam, best, t, settings, extra=extra)

    def merged(self, results: list[list[Hypothesis]], n_best: int | None) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence from those of its groups."""
        return results


TOGETHER = Groups()


def by_beam(
    model: SearchModel[S],
    source: Tensor,
    settings: Settings,
    *,
    joint: bool = False,
    way: Groups = TOGETHER,
) -> list[list[Hypothesis]]:
    """What `nmt.search.beam_search` finds, which says more; `joint` is Zero's rule for a batch."""
    beam_size, n_best, groups = settings.beam_size, settings.n_best, way.count
    # A group is treated as a sentence with a smaller beam: B * G sentences, with the groups of one sentence adjacent.
    results: list[list[Hypothesis]] = [[]] * (source.shape[0] * groups)
    if not results:
        return results
    beam = empty_beam(source.repeat_interleave(groups, 0), replace(settings, beam_size=beam_size // groups))
    covered = CoveringModel(model, strength=settings.coverage_penalty) if settings.coverage_penalty else None
    searched: Any = model if covered is None else covered
    state = searched.start(source)
    for t in itertools.count():
        done = are_done(beam, t, settings, joint=joint) & beam.active
        if groups > 1:  # they end together
            done = done.view(-1, groups).all(1).repeat_interleave(groups)
        if bool(done.any()):
            extra = None if covered is None else covered.penalties(state).view(len(done), -1)
            collect(results, beam, done, t, settings, n_best=n_best if groups == 1 else None, extra=extra)
            beam = beam._replace(active=beam.active & ~done)
            rows = rows_to_keep(beam.active[::groups])
            if rows is not None:
                if not len(rows):
                    break
                state = state.keep(rows)
                if groups > 1:
                    rows = (rows.unsqueeze(1) * groups + torch.arange(groups, device=rows.device)).flatten()
                beam = beam.select(rows)
        tokens = beam.ids[:, :, -1].flatten() if t else None
        if tokens is not None and joint and bool((tokens == PAD).all()):
            # Zero begins its sequences with PAD and feeds zeros when all rows of the batch end with PAD.
            tokens = None
        best, state = searched.best(tokens, state, choice_of(beam, t, groups=groups, pad_allowed=joint))
        extra = None if covered is None else covered.penalties(state)
        beam, beams = way.advanced(beam, best, t, settings, extra)
        state = state.reorder(rows_of(beams)) if t else state.expand(beam_size)
    return way.merged(results, n_best)


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """Options of `beam`."""

    temperature: float = 1.0
    """What logits are divided by; scores are of the distribution that this makes."""

    def __post_init__(self) -> None:
        positive("temperature", self.temperature)


def positive(name: str, value: float) -> None:
    """Raise ValueError unless an option is above 0 and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name}: must be above 0, not {value:g}")


@SEARCHES.register("beam")
class BeamSearch(Search):
    """The beam search of Zero: its candidates, its scores, its rule when to stop. A beam of 1 is not greedy search."""

    Options: ClassVar[type] = BeamOptions
    accepts = LENGTHS | {"coverage_penalty", "required"}

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        if self.options.temperature != 1:
            model = model.adjusted(Temperature(self.options.temperature))
        run = by_beam if settings.required is None else CONSTRAINED_SEARCHES.get("beam")
        return run(model, source, settings)


def empty_beam(source: Tensor, settings: Settings) -> Beam:
    """The beam before the first token: one alive hypothesis, of no tokens, for each sentence."""
    size, beam_size = source.shape[0], settings.beam_size
    dead = torch.full((size, beam_size), -math.inf, device=source.device)
    log_probs = dead.clone()
    log_probs[:, 0] = 0.0
    ids = source.new_empty(size, beam_size, 0)
    sentences = torch.arange(size, device=source.device)
    active = torch.ones_like(sentences, dtype=torch.bool)
    return Beam(sentences, active, limits_of(source, settings), log_probs, ids, finished_scores=dead, finished_ids=ids)


def are_done(beam: Beam, t: int, settings: Settings, *, joint: bool) -> Tensor:
    """Which sentences need no further step after t [B]; with `joint` all of them or none.

    Zero's rule compares with the worst finished hypothesis. If only the n best are wanted, comparing with the n-th
    stops no later, and gives the same n.
    """
    best_possible, n_best = beam.log_probs[:, 0] / settings.penalty(beam.limits.double()), settings.n_best
    filled = beam.finished_scores > -math.inf
    worst = beam.finished_scores.masked_fill(~filled, math.inf).amin(dim=1)
    settled = filled[:, 0] & (worst > best_possible)
    if n_best is not None and not joint:
        settled |= beam.finished_scores[:, min(n_best, beam.finished_scores.shape[1]) - 1] > best_possible
    settled |= beam.log_probs[:, 0] == -math.inf  # nothing is left that could be continued
    at_limit = t >= beam.limits
    if joint:
        return (settled.all() | at_limit.all()).expand_as(settled)
    return settled | at_limit


def choice_of(beam: Beam, t: int, *, groups: int = 1, pad_allowed: bool = False) -> Choice:
    """The best continuations after t tokens, as many as are needed.

    Of K hypotheses, 2K are enough to leave K unfinished ones, for each hypothesis can end in only one way. Of equal
    ones the smaller beam, then the smaller id comes first. All have the same length, so they rank by log-probability.

    The 2K best of a group of K by penalised values are among its 2K + P best by the model's, if P continuations at
    most are penalised: of those that come before one of them by the model's values, at least 2K are not. A word is
    penalised in each of the K hypotheses, and no more words are than the groups before have hypotheses.
    """
    size = beam.log_probs.shape[1]
    alive = size if t else 1  # there is only one at first
    return Choice(
        2 * size + (groups - 1) * size * alive,
        before=beam.log_probs if t else beam.log_probs[::groups, :1],
        banned=None if pad_allowed else PAD,
        penalised=None if t else EOS,
        penalty=FIRST_EOS_PENALTY,
    )


def advance(
    beam: Beam, best: BestWords, t: int, settings: Settings, *, extra: Tensor | None = None
) -> tuple[Beam, Tensor]:
    """Sort the 2K best continuations of each sentence, of t tokens so far, into alive and finished hypotheses.

    `extra` [B, K] is added to the score of what ends, by the hypothesis that it continues.

    Returns the new beam and, for each alive hypothesis, which one of the old it continues [B, K].
    """
    size = beam.log_probs.shape[1]
    ids = torch.cat([gather_ids(beam.ids, best.hypotheses), best.words.unsqueeze(2)], dim=2)  # [B, 2K, t + 1]
    has_ended = (best.words == EOS) | (t >= beam.limits).unsqueeze(1)
    # A NaN would count as the largest value and hide what has been found.
    values = best.values.nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
    # They come best first, so a stable sort by the flag puts the best unfinished ones in front.
    order = has_ended.to(torch.uint8).sort(dim=1, stable=True).indices[:, :size]
    scores = values / settings.penalty(t + 1)
    if extra is not None:
        scores = scores + extra.gather(1, best.hypotheses)
    scores = scores.masked_fill(~has_ended, -math.inf)
    scores = torch.cat([beam.finished_scores.to(scores.dtype), scores], dim=1)
    all_ids = torch.cat([F.pad(beam.finished_ids, (0, 1), value=PAD), ids], dim=1)
    scores, first = scores.sort(dim=1, descending=True, stable=True)
    advanced = beam._replace(
        log_probs=values.masked_fill(has_ended, -math.inf).gather(1, order),
        ids=gather_ids(ids, order),
        finished_scores=scores[:, :size],
        finished_ids=gather_ids(all_ids, first[:, :size]),
    )
    return advanced, best.hypotheses.gather(1, order)


def gather_ids(ids: Tensor, index: Tensor) -> Tensor:
    """Rows `index` [B, M] of each sentence's `ids` [B, N, t]: [B, M, t]."""
    return ids.gather(1, index.unsqueeze(2).expand(-1, -1, ids.shape[2]))


def rows_of(beams: Tensor) -> Tensor:
    """Rows of the model's state, sentence-major [B * K], of the beams [B, K] within their sentences."""
    size, beam_size = beams.shape
    first = torch.arange(size, device=beams.device).unsqueeze(1) * beam_size
    return (first + beams).flatten()


def collect(
    results: list[list[Hypothesis]],
    beam: Beam,
    done: Tensor,
    t: int,
    settings: Settings,
    *,
    n_best: int | None,
    extra: Tensor | None,
) -> None:
    """Write down the hypotheses of the sentences that are `done` [B] after t steps; `extra` [B, K] is added to the
    scores of alive ones."""
    alive, ids, penalty = beam.log_probs, beam.ids, settings.penalty(t)
    if extra is not None:
        alive, order = (alive + extra * penalty).sort(dim=1, descending=True, stable=True)
        ids = gather_ids(ids, order)
    ended = done.nonzero().squeeze(1)
    any_finished = beam.finished_scores[:, :1] > -math.inf
    scores = torch.where(any_finished, beam.finished_scores, alive / penalty)[ended].tolist()
    ids = torch.where(any_finished.unsqueeze(2), beam.finished_ids, ids)[ended]
    for sentence, row, hypotheses in zip(beam.sentences[ended].tolist(), scores, ids.tolist(), strict=True):
        found: list[Hypothesis] = []
        for score, tokens in zip(row[:n_best], hypotheses, strict=False):
            if not found or score > -math.inf:
                is_finite = score > -math.inf
                found.append(Hypothesis(cut(tokens), score, has_ended=EOS in tokens, is_finite=is_finite))
        results[sentence] = found
