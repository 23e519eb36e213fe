"""Noisy beam search: beam search in a distribution that Gumbel noise changes at each step, as in Zero.

The random numbers, those of `sample` too, hang on a line, not on its companions or the device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.data.vocabulary import PAD
from nmt.registry import SEARCHES
from nmt.search.beam import BeamSearch, positive
from nmt.search.ruled import RuledModel, Step

_EPSILON = 1e-8
"""Inside the logarithms of Gumbel noise, as in Zero."""
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

_GOLDEN_32 = 0x9E3779B9
_MULTIPLIERS_32 = (0x7FEB352D, 0x846CA68B - (1 << 32))


class GumbelNoise:
    """Noise g added to the logits, drawn for each hypothesis, step and word: g = -ln(-ln(u + eps) + eps), 0 <= u < 1.

    Argmax of logits + g is a sample of their softmax (Gumbel, 1954). u follows from the key of the line, the
    step, the place of the hypothesis in the beam, and the id of the word.
    """

    def __init__(self, keys: Tensor, *, scale: float = 1.0) -> None:
        """`keys` [B]: keys of the sentences of the batch, see `keys_of`; `scale`: factor of the noise."""
        self._keys = keys
        self._scale = scale

    def __call__(self, logits: Tensor, step: Step) -> Tensor:
        places = torch.arange(len(logits), device=logits.device) % step.hypotheses
        keys = mixed(self._keys[step.lines], step.history.shape[1], places)  # [N]
        words = torch.arange(logits.shape[1], device=logits.device) if step.words is None else step.words
        noise = uniform(keys.unsqueeze(1), words).to(logits.dtype)  # [N, V]
        noise.add_(_EPSILON).log_().neg_().add_(_EPSILON).log_().neg_()
        return logits.add_(noise, alpha=self._scale)


def keys_of(source: Tensor, *, seed: int) -> Tensor:
    """A number [B] of 64 bits for each sentence of source [B, S], from its ids and a seed."""
    return torch.tensor([_key(row, seed) for row in source.tolist()], dtype=torch.int64, device=source.device)


def mixed(keys: Tensor, *numbers: int | Tensor) -> Tensor:
    """New keys from keys and whole numbers, which may have another shape if it can be expanded."""
    for number in numbers:
        if isinstance(number, int):
            keys = _scrambled(keys + _signed(_GOLDEN * (number + 1) % (1 << 64)))
        else:
            keys = _scrambled(keys + (number + 1) * _signed(_GOLDEN))
    return keys


def uniform(keys: Tensor, numbers: Tensor) -> Tensor:
    """Random numbers from 0 to below 1 with 24 bits, in fp32, one for each key and number that are broadcast together.

    In 32 bits, of which a CPU multiplies many at a time, by the hash `lowbias32` (C. Wellons, 2018).
    """
    x = _low(mixed(keys, 0)) + _low(numbers * _GOLDEN_32)
    for shift, multiplier in zip((16, 15), _MULTIPLIERS_32, strict=True):
        x.bitwise_xor_((x >> shift).bitwise_and_((1 << (32 - shift)) - 1)).mul_(multiplier)
    x.bitwise_xor_((x >> 16).bitwise_and_((1 << 16) - 1))
    return (x >> 8).bitwise_and_((1 << 24) - 1).to(torch.float32).mul_(2.0**-24)


def uniform64(keys: Tensor) -> Tensor:
    """Random numbers from 0 to below 1 with 53 bits, in fp64, one for each key."""
    return _shifted(mixed(keys, 0), 11).to(torch.float64).mul_(2.0**-53)


def _key(ids: Sequence[int], seed: int) -> int:
    words = [token for token in ids if token != PAD]
    digest = hashlib.blake2b(repr((seed, words)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _scrambled(x: Tensor) -> Tensor:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): products modulo 2^64, which int64 keeps."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        x = (x ^ _shifted(x, shift)) * _signed(multiplier)
    return x ^ _shifted(x, 31)


def _low(x: Tensor) -> Tensor:
    """The lower 32 bits of x as a signed number."""
    return (((x & 0xFFFFFFFF) ^ (1 << 31)) - (1 << 31)).to(torch.int32)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """x, taken as an unsigned number, shifted to the right."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    """The 64 bits of an unsigned number as a signed one."""
    return number - (1 << 64) if number >= 1 << 63 else number


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
