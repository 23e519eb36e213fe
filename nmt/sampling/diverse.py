"""Beam search in groups that avoid each other's words (Vijayakumar et al., 2018).

B sentences, K hypotheses (beams) each, t tokens so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nmt.config.options import check_options
from nmt.data.vocabulary import EOS, PAD
from nmt.errors import ConfigError
from nmt.ops.matrices.best_words import BestWords
from nmt.registry import SEARCHES
from nmt.search.base import LENGTHS, Search, Settings
from nmt.search.beam import TOGETHER, Beam, Groups, advance, by_beam, gather_ids
from nmt.search.ruled import RuledModel, SearchModel
from nmt.search.values import Hypothesis

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig


@torch.inference_mode()
def diverse_beam_search(
    model: SearchModel[Any], source: Tensor, *, groups: int, diversity: float, **settings: Any
) -> list[list[Hypothesis]]:
    """`beam_search` in G groups of K / G hypotheses, with the Hamming diversity, which choose one after the other.

    From the value of a word, `diversity` is subtracted for each hypothesis of the earlier groups that has just been
    continued with it. The penalised values decide the continuations of a group; the scores are the model's own. The end
    symbol is never penalised: translations need not have different lengths. Each group has the limits and the stopping
    rule of a sentence, and the sentence is done when all groups are.

    Args:
        model, source: as in `beam_search`.
        groups: G, which must divide K.
        diversity: the strength, lambda in the paper, 0 or more.
        settings: those of `Settings`, with the size K of all groups together.

    Returns:
        As `beam_search`, of all groups, each hypothesis once: the finished ones, or the cut ones if no group has a
        finished one.
    """
    chosen = Settings(**settings)
    if groups < 1 or chosen.beam_size % groups:
        size = chosen.beam_size
        raise ConfigError(f"groups: {groups} groups cannot share a beam of {size}; it must be a multiple of them")
    return by_beam(model, source, chosen, way=_way(groups, diversity))


def _way(groups: int, diversity: float) -> Groups:
    return _Diverse(groups, diversity) if groups > 1 else TOGETHER


class _Diverse(Groups):
    def __init__(self, groups: int, diversity: float) -> None:
        self.count, self._diversity = groups, diversity

    def advanced(
        self, beam: Beam, best: BestWords, t: int, settings: Settings, extra: Tensor | None
    ) -> tuple[Beam, Tensor]:
        groups, diversity = self.count, self._diversity
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
            own, beams = advance(own, found, t, settings, extra=extras[group])
            log_probs, order = own.log_probs.sort(dim=1, descending=True, stable=True)
            own = own._replace(log_probs=log_probs, ids=gather_ids(own.ids, order))
            used = torch.cat([used, own.ids[:, :, -1].masked_fill(log_probs.isneginf(), PAD)], dim=1)
            advanced.append(own)
            chosen.append(beams.gather(1, order) + group * size)
        merged = Beam(*(torch.stack(fields, 1).flatten(0, 1) for fields in zip(*advanced, strict=True)))
        return merged, torch.cat(chosen, dim=1)

    def merged(self, results: list[list[Hypothesis]], n_best: int | None) -> list[list[Hypothesis]]:
        return [_merged(results[i : i + self.count], n_best=n_best) for i in range(0, len(results), self.count)]


def _merged(groups: list[list[Hypothesis]], *, n_best: int | None) -> list[Hypothesis]:
    """All hypotheses of the groups of a sentence, each once, best first."""
    found = [one for group in groups for one in group]
    usable = [one for one in found if one.is_finite and one.has_ended] or [one for one in found if one.is_finite]
    distinct = {tuple(one.ids): one for one in sorted(usable, key=lambda one: one.score)}
    return sorted(distinct.values(), key=lambda one: -one.score)[:n_best] or found[:1]


@dataclass(frozen=True, kw_only=True)
class DiverseOptions:
    """Options of `diverse_beam`."""

    groups: int = 2
    """Groups that the beam is divided into; beam_size must be a multiple. 1 is `beam`."""
    diversity: float = 0.5
    """Taken from a word's log-probability for each hypothesis of earlier groups that has chosen it at this step."""

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ValueError(f"groups: must be 1 or more, not {self.groups}")
        if self.diversity < 0:
            raise ValueError(f"diversity: must be 0 or more, not {self.diversity:g}")


@SEARCHES.register("diverse_beam")
class DiverseBeamSearch(Search):
    """Beam search in groups that avoid each other's words (Vijayakumar et al., 2018), for n-best lists that differ."""

    Options = DiverseOptions
    accepts = LENGTHS | {"coverage_penalty"}

    @classmethod
    def check(cls, decoding: DecodingConfig) -> list[tuple[str, str]]:
        options, wrong = check_options(cls, decoding.search_options, key="")
        if wrong or decoding.beam_size % options.groups == 0:
            return []
        message = f"must be a multiple of the {options.groups} groups of 'diverse_beam', not {decoding.beam_size}"
        return [("beam_size", message)]

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        options = self.options
        return by_beam(model, source, settings, way=_way(options.groups, options.diversity))
