"""Noisy beam search: beam search in a distribution that Gumbel noise changes at each step, as in Zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nmt.registry import SEARCHES
from nmt.search.beam import BeamSearch, positive
from nmt.search.noise import GumbelNoise, keys_of
from nmt.search.ruled import RuledModel


@dataclass(frozen=True, kw_only=True)
class NoisyBeamOptions:
    """Options of `noisy_beam`."""

    temperature: float = 1.0
    """What logits with their noise are divided by, before they are normalised. Zero: `sampling_temp`."""
    noise_scale: float = 1.0
    """What the noise is multiplied by before it is added to the logits; Zero has 1."""
    seed: int = 1
    """Seed of the noise. The same line gets the same noise, whatever else is translated."""

    def __post_init__(self) -> None:
        positive("temperature", self.temperature)
        positive("noise_scale", self.noise_scale)


@SEARCHES.register("noisy_beam")
class NoisyBeamSearch(BeamSearch):
    """Beam search with Gumbel noise added to the logits of each step, for varied translations (back-translation).

    Scores are those of the noisy distribution, as in Zero.
    """

    Options = NoisyBeamOptions

    def adjusted(self, model: RuledModel[Any], source: Tensor) -> RuledModel[Any]:
        noise = GumbelNoise(keys_of(source, seed=self.options.seed), scale=self.options.noise_scale)
        return super().adjusted(model.adjusted(noise), source)
