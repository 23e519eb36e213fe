"""Beam search as in Zero, for a batch of sentences, in small steps.

B sentences, K hypotheses (beams) each, V target words, t tokens so far.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError, refused
from nmt.ops.matrices.best_words import BestWords, Choice
from nmt.registry import SEARCHES
from nmt.search.base import Search, Settings, rows_to_keep
from nmt.search.coverage import CoveringModel
from nmt.search.required import constrained_beam_search
from nmt.search.ruled import RuledModel, SearchModel, SearchState, Temperature
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis, cut, penalty_of

S = TypeVar("S", bound=SearchState)
Stopping = Literal["sentence", "batch"]


class Beam(NamedTuple):
    """All hypotheses of the sentences searched; an empty slot has -inf."""

    sentences: Tensor
    """Places of these sentences in the batch [B]."""
    active: Tensor
    """False for a finished sentence, which stays only until the batch is cut [B]."""
    limits: Tensor
    """Longest translations in tokens [B]."""
    log_probs: Tensor
    """Log-probabilities of the unfinished (alive) hypotheses, best first [B, K]."""
    ids: Tensor
    """Tokens of the alive hypotheses [B, K, t]."""
    finished_scores: Tensor
    """Length-penalised scores of the finished hypotheses, best first [B, K]."""
    finished_ids: Tensor
    """Tokens of the finished hypotheses, filled with PAD [B, K, t]."""

    def select(self, rows: Tensor) -> Beam:
        """The beam of some of its sentences [B']."""
        return Beam(*(field.index_select(0, rows) for field in self))


class Candidates(NamedTuple):
    """The 2K best continuations of each sentence, best first."""

    log_probs: Tensor  # [B, 2K]
    ids: Tensor  # [B, 2K, t + 1]
    beams: Tensor  # [B, 2K]: which alive hypothesis each one continues
    finished: Tensor  # [B, 2K]: true if it ends with this token


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


def by_beam(
    model: SearchModel[S], source: Tensor, settings: Settings, *, joint: bool = False
) -> list[list[Hypothesis]]:
    """`beam_search`; `joint` is Zero's rule for a batch, which `stopping` asks for."""
    beam_size, alpha, n_best = settings.beam_size, settings.length_penalty, settings.n_best
    results: list[list[Hypothesis]] = [[] for _ in range(source.shape[0])]
    if not results:
        return results
    beam = empty_beam(source, beam_size=beam_size, max_length_offset=settings.max_length_offset)
    covered: Any = (
        CoveringModel(cast("Any", model), strength=settings.coverage_penalty) if settings.coverage_penalty else None
    )
    model = model if covered is None else covered
    state = model.start(source)
    for t in itertools.count():
        done = are_done(beam, t, alpha=alpha, joint=joint, n_best=n_best) & beam.active
        if bool(done.any()):
            ended = done.nonzero().squeeze(1)
            extra = None if covered is None else covered.penalties(state)[ended]
            collect(results, beam.select(ended), t, alpha=alpha, n_best=n_best, extra=extra)
            beam = beam._replace(active=beam.active & ~done)
            rows = rows_to_keep(beam.active)
            if rows is not None:
                if not len(rows):
                    break
                beam, state = beam.select(rows), state.keep(rows)
        best, state = model.best(last_tokens(beam, joint=joint), state, choice_of(beam, t, pad_allowed=joint))
        candidates = candidates_of(best, beam, t)
        extra = None if covered is None else covered.penalties(state)
        beam, beams = advance(beam, candidates, penalty=penalty_of(t + 1, alpha), extra=extra)
        state = state.reorder(rows_of(beams)) if t else state.expand(beam_size)
    return results


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
        run = by_beam if settings.required is None else constrained_beam_search
        return run(self.adjusted(model, source), source, settings)

    def adjusted(self, model: RuledModel[Any], source: Tensor) -> RuledModel[Any]:
        """The distribution to search in, for the batch `source` [B, S]."""
        temperature = self.options.temperature
        return model if temperature == 1 else model.adjusted(Temperature(temperature))


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


def last_tokens(beam: Beam, *, joint: bool) -> Tensor | None:
    """What to feed [B * K]: the last tokens, None (the zero vector) before the first one.

    Zero begins its sequences with PAD and feeds zeros when all rows of the batch end with PAD, so
    its joint rule does the same when all hypotheses of all sentences happen to generate PAD.
    """
    if not beam.ids.shape[2]:
        return None
    tokens = beam.ids[:, :, -1].flatten()
    return None if joint and bool((tokens == PAD).all()) else tokens


def choice_of(beam: Beam, t: int, *, pad_allowed: bool) -> Choice:
    """The 2K best continuations after t tokens.

    2K are enough to leave K unfinished ones, for each hypothesis can end in only one way. Of
    equal ones the smaller beam, then the smaller id comes first. All have the same length, so
    they rank by log-probability.
    """
    return Choice(
        2 * beam.log_probs.shape[1],
        before=beam.log_probs if t else beam.log_probs[:, :1],  # there is only one at first
        banned=None if pad_allowed else PAD,
        penalised=None if t else EOS,
        penalty=FIRST_EOS_PENALTY,
    )


def candidates_of(best: BestWords, beam: Beam, t: int) -> Candidates:
    """The best continuations of the hypotheses of `beam`, of t tokens each."""
    ids = torch.cat([gather_ids(beam.ids, best.hypotheses), best.words.unsqueeze(2)], dim=2)
    finished = (best.words == EOS) | (t >= beam.limits).unsqueeze(1)
    # A NaN would count as the largest value and hide what has been found.
    values = best.values.nan_to_num(nan=-math.inf, posinf=-math.inf, neginf=-math.inf)
    return Candidates(values, ids, best.hypotheses, finished)


def advance(beam: Beam, candidates: Candidates, *, penalty: float, extra: Tensor | None = None) -> tuple[Beam, Tensor]:
    """Sort candidates into alive and finished hypotheses.

    `extra` [B, K] is added to the score of what ends, by the hypothesis that it continues.

    Returns the new beam and, for each alive hypothesis, which one of the old it continues [B, K].
    """
    size = beam.log_probs.shape[1]
    # Candidates come best first, so a stable sort by the flag puts the best unfinished ones in front.
    order = candidates.finished.to(torch.uint8).sort(dim=1, stable=True).indices[:, :size]
    log_probs = candidates.log_probs.masked_fill(candidates.finished, -math.inf).gather(1, order)
    scores = candidates.log_probs / penalty
    if extra is not None:
        scores = scores + extra.gather(1, candidates.beams)
    scores = scores.masked_fill(~candidates.finished, -math.inf)
    scores = torch.cat([beam.finished_scores.to(scores.dtype), scores], dim=1)
    all_ids = torch.cat([F.pad(beam.finished_ids, (0, 1), value=PAD), candidates.ids], dim=1)
    scores, best = scores.sort(dim=1, descending=True, stable=True)
    advanced = beam._replace(
        log_probs=log_probs,
        ids=gather_ids(candidates.ids, order),
        finished_scores=scores[:, :size],
        finished_ids=gather_ids(all_ids, best[:, :size]),
    )
    return advanced, candidates.beams.gather(1, order)


def gather_ids(ids: Tensor, index: Tensor) -> Tensor:
    """Rows `index` [B, M] of each sentence's `ids` [B, N, t]: [B, M, t]."""
    return ids.gather(1, index.unsqueeze(2).expand(-1, -1, ids.shape[2]))


def rows_of(beams: Tensor) -> Tensor:
    """Rows of the model's state, sentence-major [B * K], of the beams [B, K] within their sentences."""
    size, beam_size = beams.shape
    first = torch.arange(size, device=beams.device).unsqueeze(1) * beam_size
    return (first + beams).flatten()


def reranked(beam: Beam, extra: Tensor) -> Beam:
    """The beam with `extra` [B, K] added to the log-probabilities of the alive hypotheses, best first."""
    log_probs, order = (beam.log_probs + extra).sort(dim=1, descending=True, stable=True)
    return beam._replace(log_probs=log_probs, ids=gather_ids(beam.ids, order))


def collect(
    results: list[list[Hypothesis]],
    beam: Beam,
    t: int,
    *,
    alpha: float,
    n_best: int | None,
    extra: Tensor | None = None,
) -> None:
    """Write down the hypotheses of sentences that are done after t steps; `extra` [B, K] is added to alive ones."""
    if extra is not None:
        beam = reranked(beam, extra * penalty_of(t, alpha))
    any_finished = beam.finished_scores[:, :1] > -math.inf
    scores = torch.where(any_finished, beam.finished_scores, beam.log_probs / penalty_of(t, alpha))
    ids = torch.where(any_finished.unsqueeze(2), beam.finished_ids, beam.ids)
    for sentence, row, hypotheses in zip(beam.sentences.tolist(), scores.tolist(), ids.tolist(), strict=True):
        results[sentence] = [
            Hypothesis(cut(tokens), score, has_ended=EOS in tokens, is_finite=score > -math.inf)
            for slot, (score, tokens) in enumerate(zip(row, hypotheses, strict=True))
            if slot == 0 or score > -math.inf
        ][:n_best]
