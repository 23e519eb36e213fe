"""Chance in a search: sampling, each word from the model's distribution, all of it or its most probable part; and noisy
beam search, in a distribution that Gumbel noise changes at each step, as in Zero.

The random numbers hang on a line, not on its companions or the device. B sentences, n samples each, N = B * n rows, V
words, t tokens so far.
"""

from __future__ import annotations

import hashlib
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
from nmt.search.beam import BeamSearch, positive
from nmt.search.ruled import RuledModel, Step
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis, cut, penalty_of

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig


_EPSILON = 1e-8
"""Inside the logarithms of Gumbel noise, as in Zero."""
_GOLDEN = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

_GOLDEN_32 = 0x9E3779B9
_MULTIPLIERS_32 = (0x7FEB352D, 0x846CA68B - (1 << 32))
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
        source, length_penalty, max_length_offset: as in `beam_search`.
        samples: n for each sentence, n >= 1.
        options: the distribution to draw from.

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
    results: list[list[Hypothesis]] = [[]] * len(source)
    if not results:
        return results
    sentences = torch.arange(len(source), device=source.device)
    drawn = Samples(
        sentences,
        active=torch.ones_like(sentences, dtype=torch.bool),
        limits=(source != PAD).sum(dim=1) + settings.max_length_offset,
        keys=mixed(keys_of(source, seed=options.seed).unsqueeze(1), torch.arange(samples, device=source.device)),
        ids=source.new_empty(len(source), samples, 0),
        totals=torch.zeros(len(source), samples, dtype=torch.float64, device=source.device),
    )
    state = model.start(source)
    for t in itertools.count():
        done = drawn.active & (drawn.ended.all(dim=1) | (t >= drawn.limits))
        if bool(done.any()):
            ended = drawn.select(done.nonzero().squeeze(1))
            own = zip(ended.sentences.tolist(), ended.ids.tolist(), ended.totals.tolist(), strict=True)
            for sentence, ids, log_probs_of in own:
                results[sentence] = _hypotheses(ids, log_probs_of, alpha=settings.length_penalty)
            drawn = drawn._replace(active=drawn.active & ~done)
            rows = rows_to_keep(drawn.active)
            if rows is not None:
                if not len(rows):
                    return results
                drawn, state = drawn.select(rows), state.keep(rows)
        log_probs, state = model.step(drawn.ids[:, :, -1].flatten() if t else None, state)
        if not t:
            log_probs, state = log_probs.repeat_interleave(samples, dim=0), state.expand(samples)
        allowed = log_probs.clone()
        allowed[:, PAD] = -math.inf
        if not t:
            allowed[:, EOS] -= FIRST_EOS_PENALTY
        words = draw(allowed, mixed(drawn.keys, t).flatten(), options=options)
        values = allowed.gather(1, words.unsqueeze(1)).view_as(drawn.totals)
        words = words.view_as(drawn.keys).masked_fill(drawn.ended, PAD)
        totals = torch.where(drawn.ended, drawn.totals, drawn.totals + values)
        drawn = drawn._replace(ids=torch.cat([drawn.ids, words.unsqueeze(2)], dim=2), totals=totals)
    raise AssertionError("every sentence has a limit")


def _hypotheses(rows: list[list[int]], totals: list[float], *, alpha: float) -> list[Hypothesis]:
    """The samples of a sentence, best first."""
    found = []
    for ids, total in zip(rows, totals, strict=True):
        tokens, has_ended = cut(ids), EOS in ids
        score = total / penalty_of(len(tokens) + has_ended, alpha)
        found.append(Hypothesis(tokens, score, has_ended=has_ended, is_finite=math.isfinite(total)))
    return sorted(found, key=lambda one: -one.score if one.is_finite else math.inf)


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


@dataclass(frozen=True)
class GumbelNoise:
    """Noise g added to the logits, drawn for each hypothesis, step and word: g = -ln(-ln(u + eps) + eps), 0 <= u < 1.

    Argmax of logits + g is a sample of their softmax (Gumbel, 1954). u follows from the key of the line, the
    step, the place of the hypothesis in the beam, and the id of the word.
    """

    keys: Tensor
    """Keys [B] of the sentences of the batch, see `keys_of`."""
    scale: float = 1.0
    """Factor of the noise."""

    def __call__(self, logits: Tensor, step: Step) -> Tensor:
        places = torch.arange(len(logits), device=logits.device) % step.hypotheses
        keys = mixed(self.keys[step.lines], step.history.shape[1], places)  # [N]
        words = torch.arange(logits.shape[1], device=logits.device) if step.words is None else step.words
        noise = uniform(keys.unsqueeze(1), words).to(logits.dtype)  # [N, V]
        noise.add_(_EPSILON).log_().neg_().add_(_EPSILON).log_().neg_()
        return logits.add_(noise, alpha=self.scale)


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

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        noise = GumbelNoise(keys_of(source, seed=self.options.seed), scale=self.options.noise_scale)
        return super().found(model.adjusted(noise), source, settings)


def keys_of(source: Tensor, *, seed: int) -> Tensor:
    """A number [B] of 64 bits for each sentence of source [B, S], from its ids and a seed."""
    keys = []
    for row in source.tolist():
        words = [token for token in row if token != PAD]
        digest = hashlib.blake2b(repr((seed, words)).encode(), digest_size=8).digest()
        keys.append(int.from_bytes(digest, "little", signed=True))
    return torch.tensor(keys, dtype=torch.int64, device=source.device)


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
