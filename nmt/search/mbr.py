"""Minimum Bayes risk: of some candidates the translation that is most like all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from nmt.light.options import OPTIONS
from nmt.registry import SEARCHES
from nmt.search.base import Search
from nmt.search.beam import beam_search
from nmt.search.hypothesis import Hypothesis, penalty_of
from nmt.search.ruled import RuledModel
from nmt.search.sample import SampleOptions, sample_search
from nmt.search.utility import UTILITIES

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig


@dataclass(frozen=True, kw_only=True)
class MbrOptions:
    """Options of `mbr`."""

    candidates: Literal["sample", "beam"] = "sample"
    """Samples of the model, each of the same weight, or the hypotheses of a beam, by their probabilities."""
    number: int = 32
    """Number of samples of a sentence, or width of the beam; beam_size is not used."""
    utility: Literal["chrf", "bleu"] = "chrf"
    """What a candidate is compared with the others by: sacreBLEU's chrF2 or BLEU of sentences, in scripts without
    spaces of characters."""
    temperature: float = 1.0
    """What the log-probabilities of samples are divided by, as in `sample`."""
    top_k: int = 0
    """Draw among so many most probable words, as in `sample`; 0: among all."""
    top_p: float = 1.0
    """Draw among the fewest most probable words that have this probability together, as in `sample`."""
    seed: int = 1
    """Seed of the samples, as in `sample`."""

    def __post_init__(self) -> None:
        if not 2 <= self.number <= OPTIONS["beam_size"].most:
            raise ValueError(f"number: must be from 2 to {OPTIONS['beam_size'].most}, not {self.number}")
        drawn = self.sampling()
        for name in ("temperature", "top_k", "top_p", "seed"):
            if self.candidates == "beam" and getattr(drawn, name) != getattr(SampleOptions(), name):
                raise ValueError(f"{name}: has no effect with candidates: beam")

    def sampling(self) -> SampleOptions:
        """What samples are drawn with."""
        return SampleOptions(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, seed=self.seed)


def in_numbers(ids: Sequence[int]) -> str:
    """The ids as words, if there is no text."""
    return " ".join(map(str, ids))


@SEARCHES.register("mbr")
class MbrSearch(Search):
    """Minimum Bayes risk (Eikema and Aziz, EMNLP 2022): the candidate with the highest expected utility.

    The utility of a candidate is its mean chrF or BLEU with the candidates as references, itself among them; the score
    of a hypothesis is that mean, from 0 to 100.
    """

    Options = MbrOptions
    accepts = frozenset({"decode"})

    @classmethod
    def largest_n_best(cls, decoding: DecodingConfig) -> int:
        return _number(decoding)

    @classmethod
    def hypotheses(cls, decoding: DecodingConfig) -> int:
        return _number(decoding)

    @classmethod
    def size(cls, decoding: DecodingConfig) -> str:
        return f"{_number(decoding)} candidates a line"

    def search(
        self,
        model: RuledModel[Any],
        source: Tensor,
        *,
        beam_size: int,
        length_penalty: float,
        max_length_offset: int,
        n_best: int,
        scores: bool,
        decode: Callable[[Sequence[int]], str] = in_numbers,
    ) -> list[list[Hypothesis]]:
        options: MbrOptions = self.options
        if options.candidates == "sample":
            found = sample_search(
                model,
                source,
                samples=options.number,
                options=options.sampling(),
                length_penalty=length_penalty,
                max_length_offset=max_length_offset,
            )
            weights = [[1.0] * len(candidates) for candidates in found]
        else:
            found = beam_search(
                model,
                source,
                beam_size=options.number,
                length_penalty=length_penalty,
                max_length_offset=max_length_offset,
            )
            weights = [_probabilities(candidates, length_penalty=length_penalty) for candidates in found]
        return [
            by_expected_utility(candidates, own, decode=decode, utility=options.utility)[:n_best]
            for candidates, own in zip(found, weights, strict=True)
        ]


def by_expected_utility(
    candidates: Sequence[Hypothesis],
    weights: Sequence[float],
    *,
    decode: Callable[[Sequence[int]], str],
    utility: str,
) -> list[Hypothesis]:
    """The candidates of different texts, best first, each with its expected utility as its score.

    Candidates with the same text count as one (the first of them) with the sum of their weights; candidates that are
    not finite are left out, unless there are no others.
    """
    usable = [(one, weight) for one, weight in zip(candidates, weights, strict=True) if one.is_finite]
    if not usable:
        return list(candidates[:1])
    by_text: dict[str, tuple[Hypothesis, float]] = {}
    for one, weight in usable:
        text = decode(one.ids)
        first, total = by_text.get(text, (one, 0.0))
        by_text[text] = first, total + weight
    totals = torch.tensor([total for _, total in by_text.values()], dtype=torch.float64)
    expected = (UTILITIES[utility](list(by_text)) @ (totals / totals.sum())).tolist()
    found = [replace(one, score=value) for (one, _), value in zip(by_text.values(), expected, strict=True)]
    return sorted(found, key=lambda one: -one.score)


def _probabilities(candidates: Sequence[Hypothesis], *, length_penalty: float) -> list[float]:
    """Relative weights of the hypotheses of a beam; the largest is 1."""
    totals = [one.score * penalty_of(len(one.ids) + one.has_ended, length_penalty) for one in candidates]
    best = max(totals)
    return [math.exp(total - best) if total > -math.inf else 0.0 for total in totals]


def _number(decoding: DecodingConfig) -> int:
    number = decoding.search_options.get("number", MbrOptions.number)
    return number if isinstance(number, int) else MbrOptions.number  # problems are reported where options are checked
