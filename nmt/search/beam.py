"""Beam search as in Zero, for a batch of sentences, in small steps; and in groups that avoid each other's words.

B sentences, K hypotheses (beams) each, V target words, t tokens so far.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.options import check_options
from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError, refused
from nmt.ops.matrices.best_words import BestWords, Choice
from nmt.registry import CONSTRAINED_SEARCHES, SEARCHES
from nmt.search.base import Search, Settings, rows_to_keep
from nmt.search.coverage import CoveringModel
from nmt.search.ruled import RuledModel, SearchModel, SearchState, Temperature
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis, cut, penalty_of

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig

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
    groups: int = 1,
    diversity: float = 0.0,
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

    In G groups of K / G hypotheses (Vijayakumar et al., 2018, with the Hamming diversity) these choose one after the
    other at each step. From the value of a word, `diversity` is subtracted for each hypothesis of the earlier groups
    that has just been continued with it. The penalised values decide the continuations of a group; the scores are the
    model's own. The end symbol is never penalised: translations need not have different lengths. Each group has the
    limits and the stopping rule of a sentence, and the sentence is done when all groups are.

    Args:
        model: anything with `start` and `best`; must be in evaluation mode.
        source: ids [B, S], each row ending with EOS and filled with PAD.
        beam_size: K >= 1, of all groups together.
        length_penalty: alpha of the score, log-probability / ((5 + length) / 6) ** alpha, EOS counted.
        max_length_offset: tokens that a translation may have more than its source.
        stopping: see above.
        n_best: hypotheses returned for each sentence; default K.
        coverage_penalty: beta; the penalty by `CoveringModel` is added to the scores of finished hypotheses, and of
            hypotheses cut by their limit. Alive ones are ranked without it. The model must have its `attending_step`
            then.
        groups: G, which must divide K.
        diversity: the strength, lambda in the paper, 0 or more.

    Returns:
        For each sentence its hypotheses, best first, ids cut before the first EOS or PAD. There can be fewer than
        n_best (empty slots are left out), but there is always one; if none has a finite score, it is marked by
        `is_finite`. Of several groups those of all, each once: the finished ones, or the cut ones if no group has a
        finished one.
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
    return by_beam(model, source, settings, joint=stopping == "batch", groups=groups, diversity=diversity)


diverse_beam_search = beam_search
"""Its name where `groups` and `diversity` are given."""


def by_beam(
    model: SearchModel[S],
    source: Tensor,
    settings: Settings,
    *,
    joint: bool = False,
    groups: int = 1,
    diversity: float = 0.0,
) -> list[list[Hypothesis]]:
    """`beam_search`; `joint` is Zero's rule for a batch."""
    beam_size, alpha, n_best = settings.beam_size, settings.length_penalty, settings.n_best
    if groups < 1 or beam_size % groups:
        raise ConfigError(f"groups: {groups} groups cannot share a beam of {beam_size}; it must be a multiple of them")
    # A group is treated as a sentence with a smaller beam: B * G sentences, with the groups of one sentence adjacent.
    results: list[list[Hypothesis]] = [[]] * (source.shape[0] * groups)
    if not results:
        return results
    size, offset = beam_size // groups, settings.max_length_offset
    beam = empty_beam(source.repeat_interleave(groups, 0), beam_size=size, max_length_offset=offset)
    covered = CoveringModel(model, strength=settings.coverage_penalty) if settings.coverage_penalty else None
    searched: Any = model if covered is None else covered
    state = searched.start(source)
    for t in itertools.count():
        done = are_done(beam, t, alpha=alpha, joint=joint, n_best=n_best) & beam.active
        if groups > 1:  # they end together
            done = done.view(-1, groups).all(1).repeat_interleave(groups)
        if bool(done.any()):
            extra = None if covered is None else covered.penalties(state).view(len(done), -1)
            collect(results, beam, done, t, alpha=alpha, n_best=n_best if groups == 1 else None, extra=extra)
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
        if groups == 1:
            beam, beams = advance(beam, best, t, alpha=alpha, extra=extra)
        else:
            beam, beams = _advance_groups(beam, best, t, groups=groups, diversity=diversity, alpha=alpha, extra=extra)
        state = state.reorder(rows_of(beams)) if t else state.expand(beam_size)
    if groups == 1:
        return results
    return [_merged(results[i : i + groups], n_best=n_best) for i in range(0, len(results), groups)]


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """Options of `beam`."""

    temperature: float = 1.0
    """What logits are divided by before they are normalised; scores are of the distribution that this makes."""

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
    accepts = frozenset({"coverage_penalty", "required"})

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        if self.options.temperature != 1:
            model = model.adjusted(Temperature(self.options.temperature))
        run = by_beam if settings.required is None else CONSTRAINED_SEARCHES.get("beam")
        return run(model, source, settings)


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
        return by_beam(model, source, settings, groups=options.groups, diversity=options.diversity)


def empty_beam(source: Tensor, *, beam_size: int, max_length_offset: int) -> Beam:
    """The beam before the first token: one alive hypothesis, of no tokens, for each sentence."""
    size = source.shape[0]
    dead = torch.full((size, beam_size), -math.inf, device=source.device)
    log_probs = dead.clone()
    log_probs[:, 0] = 0.0
    ids = source.new_empty(size, beam_size, 0)
    sentences = torch.arange(size, device=source.device)
    active = torch.ones_like(sentences, dtype=torch.bool)
    limits = (source != PAD).sum(dim=1) + max_length_offset
    return Beam(sentences, active, limits, log_probs, ids, finished_scores=dead, finished_ids=ids)


def are_done(beam: Beam, t: int, *, alpha: float, joint: bool, n_best: int | None = None) -> Tensor:
    """Which sentences need no further step after t [B]; with `joint` all of them or none.

    Zero's rule compares with the worst finished hypothesis. If only the n best are wanted, comparing with the n-th
    stops no later, and gives the same n.
    """
    best_possible = beam.log_probs[:, 0] / ((5.0 + beam.limits.double()) / 6.0) ** alpha
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


def advance(beam: Beam, best: BestWords, t: int, *, alpha: float, extra: Tensor | None = None) -> tuple[Beam, Tensor]:
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
    scores = values / penalty_of(t + 1, alpha)
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


def _advance_groups(
    beam: Beam, best: BestWords, t: int, *, groups: int, diversity: float, alpha: float, extra: Tensor | None
) -> tuple[Beam, Tensor]:
    """The beam with one more token, group after group, and which hypothesis [B, K] each alive one continues.

    `extra` [B, K], at first [B, 1], is added to the score of what ends.
    """
    size = beam.log_probs.shape[1]
    if not t:  # the groups begin with the same hypothesis
        best = BestWords(*(part.repeat_interleave(groups, 0) for part in best))
        extra = None if extra is None else extra.repeat_interleave(groups, 1)
    extras = [None] * groups if extra is None else extra.unflatten(1, (groups, -1)).unbind(1)
    advanced, chosen = [], []
    used = best.words.new_empty(len(beam.log_probs) // groups, 0)  # the words chosen by the groups before
    for group in range(groups):
        own = Beam(*(field[group::groups] for field in beam))
        found = BestWords(*(field[group::groups] for field in best))
        # Sorted by penalised values; those that are returned are the model's own.
        times = (found.words.unsqueeze(2) == used.unsqueeze(1)).sum(2).masked_fill(found.words == EOS, 0)
        penalised = found.values.nan_to_num(nan=-math.inf) - diversity * times
        order = penalised.sort(dim=1, descending=True, stable=True).indices[:, : 2 * size]
        found = BestWords(*(field.gather(1, order) for field in found))
        own, beams = advance(own, found, t, alpha=alpha, extra=extras[group])
        log_probs, order = own.log_probs.sort(dim=1, descending=True, stable=True)
        own = own._replace(log_probs=log_probs, ids=gather_ids(own.ids, order))
        used = torch.cat([used, own.ids[:, :, -1].masked_fill(log_probs.isneginf(), PAD)], dim=1)
        advanced.append(own)
        chosen.append(beams.gather(1, order) + group * size)
    merged = Beam(*(torch.stack(fields, 1).flatten(0, 1) for fields in zip(*advanced, strict=True)))
    return merged, torch.cat(chosen, dim=1)


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
    *,
    alpha: float,
    n_best: int | None,
    extra: Tensor | None,
) -> None:
    """Write down the hypotheses of the sentences that are `done` [B] after t steps; `extra` [B, K] is added to the
    scores of alive ones."""
    alive, ids, penalty = beam.log_probs, beam.ids, penalty_of(t, alpha)
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


def _merged(groups: list[list[Hypothesis]], *, n_best: int | None) -> list[Hypothesis]:
    """All hypotheses of the groups of a sentence, each once, best first."""
    found = [one for group in groups for one in group]
    usable = [one for one in found if one.is_finite and one.has_ended] or [one for one in found if one.is_finite]
    distinct = {tuple(one.ids): one for one in sorted(usable, key=lambda one: one.score)}
    return sorted(distinct.values(), key=lambda one: -one.score)[:n_best] or found[:1]
