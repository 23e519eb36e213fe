"""Sampling: each word is drawn from the model's distribution, all of it or its most probable part.

B sentences, n samples each, N = B * n rows, V words, t tokens so far.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.errors import counted
from nmt.light.options import OPTIONS
from nmt.ops.matrices.best_words import top
from nmt.registry import SEARCHES
from nmt.search.base import Search, Settings, rows_to_keep
from nmt.search.beam import positive
from nmt.search.noisy import keys_of, mixed, uniform64
from nmt.search.ruled import RuledModel
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis, cut, penalty_of

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig


_FEW = 64
"""Words that are put in order first: all of them seldom need to be."""


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options of `sample`."""

    temperature: float = 1.0
    """What log-probabilities are divided by before a word is drawn: below 1 probable words come more often."""
    top_k: int = 0
    """Draw among so many most probable words (Fan et al., 2018); 0: among all."""
    top_p: float = 1.0
    """Draw among the fewest most probable words that have this probability together (Holtzman et al., 2020), after
    temperature and `top_k`."""
    seed: int = 1
    """Seed of the random numbers. The same line gets the same samples, whatever else is translated."""

    def __post_init__(self) -> None:
        positive("temperature", self.temperature)
        if self.top_k < 0:
            raise ValueError(f"top_k: must be 0 or more, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: must be above 0 and at most 1, not {self.top_p:g}")


class Samples(NamedTuple):
    """All samples of the sentences that are still there."""

    sentences: Tensor
    """Places of these sentences in the batch [B]."""
    active: Tensor
    """False for a finished sentence, which stays only until the batch is cut [B]."""
    limits: Tensor
    """Longest translations in tokens [B]."""
    keys: Tensor
    """Keys of the random numbers of each sample [B, n]."""
    ids: Tensor
    """[B, n, t]; after its end symbol a sample is filled with padding."""
    totals: Tensor
    """Log-probabilities [B, n]."""

    def select(self, rows: Tensor) -> Samples:
        """Some of the sentences."""
        return Samples(*(field.index_select(0, rows) for field in self))

    @property
    def ended(self) -> Tensor:
        """Which samples have their end symbol [B, n]."""
        if not self.ids.shape[2]:
            return torch.zeros_like(self.keys, dtype=torch.bool)
        return (self.ids[:, :, -1] == EOS) | (self.ids[:, :, -1] == PAD)


@torch.inference_mode()
def sample_search(
    model: RuledModel[Any],
    source: Tensor,
    *,
    samples: int,
    options: SampleOptions,
    length_penalty: float,
    max_length_offset: int,
) -> list[list[Hypothesis]]:
    """Draw a number of translations word by word, independently of each other.

    The padding symbol is never drawn, nor the end symbol first, nor words that a rule excludes; other words are drawn
    in proportion to their probabilities. The result depends on seed, source, number of the sample and step, not on
    other sentences of the batch, and the first samples are the same however many are drawn.

    Args:
        model: a model with its rules, in evaluation mode.
        source: ids [B, S], each row ending with EOS and filled with PAD.
        samples: n for each sentence, n >= 1.
        options: the distribution to draw from.
        length_penalty: alpha of the score, log-probability / ((5 + length) / 6) ** alpha.
        max_length_offset: tokens that a translation may have more than its source (with EOS).

    Returns:
        For each sentence n hypotheses, best first; their scores are the model's own log-probabilities, without
        temperature or top_k and top_p.
    """
    settings = Settings(n_best=samples, length_penalty=length_penalty, max_length_offset=max_length_offset)
    return by_sampling(model, source, settings, options=options)


def by_sampling(
    model: RuledModel[Any], source: Tensor, settings: Settings, *, options: SampleOptions
) -> list[list[Hypothesis]]:
    """`sample_search` with n_best samples of each sentence."""
    samples = settings.n_best or 1
    results: list[list[Hypothesis]] = [[] for _ in range(source.shape[0])]
    if not results:
        return results
    drawn = _no_words(source, samples=samples, seed=options.seed, max_length_offset=settings.max_length_offset)
    state = model.start(source)
    for t in itertools.count():
        done = drawn.active & (drawn.ended.all(dim=1) | (t >= drawn.limits))
        if bool(done.any()):
            _collect(results, drawn.select(done.nonzero().squeeze(1)), settings.length_penalty)
            drawn = drawn._replace(active=drawn.active & ~done)
            rows = rows_to_keep(drawn.active)
            if rows is not None:
                if not len(rows):
                    return results
                drawn, state = drawn.select(rows), state.keep(rows)
        log_probs, state = model.step(drawn.ids[:, :, -1].flatten() if t else None, state)
        if not t:
            log_probs, state = log_probs.repeat_interleave(samples, dim=0), state.expand(samples)
        drawn = _extended(drawn, log_probs, t, options=options)
    raise AssertionError("every sentence has a limit")


def draw(log_probs: Tensor, keys: Tensor, *, options: SampleOptions) -> Tensor:
    """Words [N] drawn from log-probabilities [N, V] by the random numbers of keys [N]."""
    values = chosen(log_probs.double() / options.temperature, top_k=options.top_k, top_p=options.top_p)
    sums = values.softmax(1).cumsum(1)  # [N, V]
    places = torch.searchsorted(sums, uniform64(keys).unsqueeze(1) * sums[:, -1:], right=True)
    return places.squeeze(1).clamp_(max=log_probs.shape[1] - 1)


def chosen(values: Tensor, *, top_k: int, top_p: float) -> Tensor:
    """Logits [N, V] with -infinity for what is not to be drawn; of equal ones the smaller id is kept first."""
    if 0 < top_k < values.shape[1]:
        best, places = top(values, top_k)
        values = torch.full_like(values, -math.inf).scatter_(1, places, best)
    if top_p < 1:
        probabilities = values.softmax(1)
        best, places = top(probabilities, min(_FEW, probabilities.shape[1]))
        found = _together(values, best, places, mass=top_p)
        more = (best.sum(1) < top_p).nonzero().squeeze(1)
        if len(more):
            best, places = probabilities[more].sort(dim=1, descending=True, stable=True)
            found[more] = _together(values[more], best, places, mass=top_p)
        values = found
    return values


def _together(values: Tensor, best: Tensor, places: Tensor, *, mass: float) -> Tensor:
    """Logits [N, V] of the first of the `best` probabilities [N, k], at `places`, that have `mass`; else -infinity."""
    kept = values.gather(1, places).masked_fill(best.cumsum(1) - best >= mass, -math.inf)
    return torch.full_like(values, -math.inf).scatter_(1, places, kept)


@SEARCHES.register("sample")
class SampleSearch(Search):
    """Draws each word from the model's distribution; n_best samples of each line, whatever the beam size is."""

    Options = SampleOptions
    best_of_n = True

    @classmethod
    def largest_n_best(cls, decoding: DecodingConfig) -> int:
        return int(OPTIONS["beam_size"].most)

    @classmethod
    def hypotheses(cls, decoding: DecodingConfig) -> int:
        return decoding.n_best

    @classmethod
    def size(cls, decoding: DecodingConfig) -> str:
        return f"{counted(decoding.n_best, 'sample')} a line"

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        return by_sampling(model, source, settings, options=self.options)


def _no_words(source: Tensor, *, samples: int, seed: int, max_length_offset: int) -> Samples:
    sentences = torch.arange(len(source), device=source.device)
    numbers = torch.arange(samples, device=source.device)
    return Samples(
        sentences,
        active=torch.ones_like(sentences, dtype=torch.bool),
        limits=(source != PAD).sum(dim=1) + max_length_offset,
        keys=mixed(keys_of(source, seed=seed).unsqueeze(1), numbers),
        ids=source.new_empty(len(source), samples, 0),
        totals=torch.zeros(len(source), samples, dtype=torch.float64, device=source.device),
    )


def _extended(drawn: Samples, log_probs: Tensor, t: int, *, options: SampleOptions) -> Samples:
    """With one more word of each sample, by the log-probabilities [N, V] of the model."""
    allowed = log_probs.clone()
    allowed[:, PAD] = -math.inf
    if not t:
        allowed[:, EOS] -= FIRST_EOS_PENALTY
    words = draw(allowed, mixed(drawn.keys, t).flatten(), options=options)
    values = allowed.gather(1, words.unsqueeze(1)).view_as(drawn.totals)
    words = words.view_as(drawn.keys).masked_fill(drawn.ended, PAD)
    totals = torch.where(drawn.ended, drawn.totals, drawn.totals + values)
    return drawn._replace(ids=torch.cat([drawn.ids, words.unsqueeze(2)], dim=2), totals=totals)


def _collect(results: list[list[Hypothesis]], drawn: Samples, alpha: float) -> None:
    """Write down the sentences that are done."""
    for sentence, rows, totals in zip(drawn.sentences.tolist(), drawn.ids.tolist(), drawn.totals.tolist(), strict=True):
        found = []
        for ids, total in zip(rows, totals, strict=True):
            tokens, has_ended = cut(ids), EOS in ids
            score = total / penalty_of(len(tokens) + has_ended, alpha)
            found.append(Hypothesis(tokens, score, has_ended=has_ended, is_finite=math.isfinite(total)))
        results[sentence] = sorted(found, key=lambda one: -one.score if one.is_finite else math.inf)
