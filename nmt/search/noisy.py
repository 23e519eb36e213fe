"""Noisy beam search: beam search in a distribution that Gumbel noise changes at each step, as in Zero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from nmt.registry import SEARCHES
from nmt.search.base import Search
from nmt.search.beam import beam_search, positive
from nmt.search.constrained import constrained_beam_search
from nmt.search.hypothesis import Hypothesis
from nmt.search.noise import GumbelNoise, Temperature, keys_of
from nmt.search.required import Required
from nmt.search.ruled import RuledModel


@dataclass(frozen=True, kw_only=True)
class NoisyBeamOptions:
    """Options of `noisy_beam`."""

    temperature: float = 1.0
    """What logits with their noise are divided by, before they are normalised. Zero: `sampling_temp`."""
    noise_scale: float = 1.0
    """What the noise is multiplied by before it is added to the logits; Zero has 1."""
    seed: int = 1
    """Of the noise. The same line gets the same noise, whatever else is translated."""

    def __post_init__(self) -> None:
        positive("temperature", self.temperature)
        positive("noise_scale", self.noise_scale)


@SEARCHES.register("noisy_beam")
class NoisyBeamSearch(Search):
    """Beam search with Gumbel noise added to the logits of each step, for varied translations (back-translation).

    Scores are those of the noisy distribution, as in Zero.
    """

    Options = NoisyBeamOptions
    accepts = frozenset({"coverage_penalty", "required"})

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
        coverage_penalty: float = 0.0,
        required: Required | None = None,
    ) -> list[list[Hypothesis]]:
        noise = GumbelNoise(keys_of(source, seed=self.options.seed), scale=self.options.noise_scale)
        run = beam_search if required is None else partial(constrained_beam_search, required=required)
        return run(
            model.adjusted(noise).adjusted(Temperature(self.options.temperature)),
            source,
            beam_size=beam_size,
            length_penalty=length_penalty,
            max_length_offset=max_length_offset,
            n_best=n_best,
            coverage_penalty=coverage_penalty,
        )
