"""Chance in a search: sampling, each word from the model's distribution, all or its most probable part; noisy beam
search, whose distribution Gumbel noise changes at each step, as in Zero; and minimum Bayes risk: of some candidates the
translation that is most like all of them.

The random numbers hang on a line, not on its companions or the device. B sentences, n samples each, N = B * n rows, V
words, t tokens so far.

How well each candidate would do if each other one were the reference, is sacreBLEU's chrF and BLEU of sentences, with
the n-grams of each translation counted once: M translations have M * M pairs. The k-th occurrence of an n-gram is a
feature of its own, so that the matches of all pairs are one product of matrices of zeros and ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import torch
from torch import Tensor

from nmt.data.matching import are_unspaced
from nmt.data.vocabulary import EOS, PAD
from nmt.errors import counted
from nmt.light.options import OPTIONS
from nmt.ops.matrices.best_words import top
from nmt.registry import SEARCHES
from nmt.search.base import LENGTHS, Search, Settings, limits_of, rows_to_keep
from nmt.search.beam import BeamSearch, by_beam, positive
from nmt.search.ruled import RuledModel, Step
from nmt.search.values import FIRST_EOS_PENALTY, Hypothesis, cut

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
    """What log-probabilities are divided by: below 1 probable words come more often."""
    top_k: int = 0
    """Draw among so many most probable words (Fan et al., 2018); 0: among all."""
    top_p: float = 1.0
    """Draw among the fewest words that have this probability together (Holtzman et al., 2020), after `top_k`."""
    seed: int = 1
    """Seed of the random numbers, which depend on it and the line."""

    def __post_init__(self) -> None:
        positive("temperature", self.temperature)
        if self.top_k < 0:
            raise ValueError(f"top_k: must be 0 or more, not {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: must be above 0 and at most 1, not {self.top_p:g}")


class Samples(NamedTuple):
    """All samples of the sentences that are still there."""

    sentences: Tensor  # places of these sentences in the batch [B]
    active: Tensor  # false for a finished sentence, which stays only until the batch is cut [B]
    limits: Tensor  # longest translations in tokens [B]
    keys: Tensor  # keys of the random numbers of each sample [B, n]
    ids: Tensor  # [B, n, t]; after its end symbol a sample is filled with padding
    totals: Tensor  # log-probabilities [B, n]

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
    return SampleSearch(options=options).found(model, source, settings)


def _hypotheses(rows: list[list[int]], totals: list[float], settings: Settings) -> list[Hypothesis]:
    """The samples of a sentence, best first."""
    found = []
    for ids, total in zip(rows, totals, strict=True):
        tokens, has_ended = cut(ids), EOS in ids
        score = total / settings.penalty(len(tokens) + has_ended)
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
    accepts = LENGTHS
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
        samples = settings.n_best or 1
        results: list[list[Hypothesis]] = [[]] * len(source)
        if not results:
            return results
        sentences = torch.arange(len(source), device=source.device)
        drawn = Samples(
            sentences,
            active=torch.ones_like(sentences, dtype=torch.bool),
            limits=limits_of(source, settings),
            keys=mixed(
                keys_of(source, seed=self.options.seed).unsqueeze(1), torch.arange(samples, device=source.device)
            ),
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
                    results[sentence] = _hypotheses(ids, log_probs_of, settings)
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
            words = draw(allowed, mixed(drawn.keys, t).flatten(), options=self.options)
            values = allowed.gather(1, words.unsqueeze(1)).view_as(drawn.totals)
            words = words.view_as(drawn.keys).masked_fill(drawn.ended, PAD)
            totals = torch.where(drawn.ended, drawn.totals, drawn.totals + values)
            drawn = drawn._replace(ids=torch.cat([drawn.ids, words.unsqueeze(2)], dim=2), totals=totals)
        raise AssertionError("every sentence has a limit")


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
    """Factor of the noise."""
    seed: int = 1
    """Seed of the noise, which depends on it and the line alone."""

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
    """A number [B] of 64 bits for each sentence of source [B, S], from a seed and its ids, as in the engine."""
    keys = torch.full((len(source),), _signed(seed % (1 << 64)))
    for tokens in source.cpu().unbind(1):
        keys = torch.where(tokens == PAD, keys, mixed(keys, tokens))
    return keys.to(source.device)


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


@dataclass(frozen=True, kw_only=True)
class MbrOptions(SampleOptions):
    """Options of `mbr`, those of `sample` among them, with which samples are drawn."""

    candidates: Literal["sample", "beam"] = "sample"
    """`sample`: samples of equal weight; `beam`: the hypotheses of a beam, by their probabilities."""
    number: int = 32
    """Samples of a sentence, or width of the beam."""
    utility: Literal["chrf", "bleu"] = "chrf"
    """Compares candidates: sacreBLEU's `chrf` or `bleu` of sentences, of characters in scripts without spaces."""

    def __post_init__(self) -> None:
        if not 2 <= self.number <= OPTIONS["beam_size"].most:
            raise ValueError(f"number: must be from 2 to {OPTIONS['beam_size'].most}, not {self.number}")
        super().__post_init__()
        for name, usual in vars(SampleOptions()).items():
            if self.candidates == "beam" and getattr(self, name) != usual:
                raise ValueError(f"{name}: has no effect with candidates: beam")


@SEARCHES.register("mbr")
class MbrSearch(Search):
    """Minimum Bayes risk (Eikema and Aziz, EMNLP 2022): the candidate with the highest expected utility.

    The utility of a candidate is its mean chrF or BLEU with the candidates as references, itself among them; the score
    of a hypothesis is that mean, from 0 to 100.
    """

    Options = MbrOptions
    accepts = LENGTHS | {"decode"}

    @classmethod
    def hypotheses(cls, decoding: DecodingConfig) -> int:
        number = decoding.search_options.get("number", MbrOptions.number)
        return number if isinstance(number, int) else MbrOptions.number  # the check of the options tells of others

    @classmethod
    def largest_n_best(cls, decoding: DecodingConfig) -> int:
        return cls.hypotheses(decoding)

    @classmethod
    def size(cls, decoding: DecodingConfig) -> str:
        return f"{cls.hypotheses(decoding)} candidates a line"

    def found(self, model: RuledModel[Any], source: Tensor, settings: Settings) -> list[list[Hypothesis]]:
        options: MbrOptions = self.options
        if options.candidates == "sample":
            every = replace(settings, n_best=options.number)
            found = SampleSearch(options=options).found(model, source, every)
            weights = [[1.0] * len(candidates) for candidates in found]
        else:
            found = by_beam(model, source, replace(settings, beam_size=options.number, n_best=None))
            weights = [_probabilities(candidates, settings) for candidates in found]
        decode = settings.decode or (lambda ids: " ".join(map(str, ids)))  # if there is no text
        return [
            by_expected_utility(candidates, own, decode=decode, utility=options.utility)[: settings.n_best]
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


def _probabilities(candidates: Sequence[Hypothesis], settings: Settings) -> list[float]:
    """Relative weights of the hypotheses of a beam; the largest is 1."""
    totals = [one.score * settings.penalty(len(one.ids) + one.has_ended) for one in candidates]
    best = max(totals)
    return [math.exp(total - best) if total > -math.inf else 0.0 for total in totals]


CHAR_ORDER: Final = 6
WORD_ORDER: Final = 4
BETA: Final = 2


def chrf(texts: Sequence[str]) -> Tensor:
    """chrF2 [M, M] in percent (Popovic, WMT 2015): of text i with text j as its reference."""
    from sacrebleu.metrics.helpers import extract_all_char_ngrams

    counts = [extract_all_char_ngrams(text, CHAR_ORDER, False) for text in texts]
    sums = torch.zeros(3, len(texts), len(texts), dtype=torch.float64)  # precision, recall, orders
    for order in range(CHAR_ORDER):
        matches, sizes = _matches([own[order] for own in counts])
        filled = (sizes.unsqueeze(1) > 0) & (sizes > 0)
        precision = matches / sizes.clamp(min=1).unsqueeze(1)
        recall = matches / sizes.clamp(min=1)
        sums += torch.stack([precision * filled, recall * filled, filled.double()])
    precision, recall = sums[:2] / sums[2].clamp(min=1)
    below = BETA**2 * precision + recall
    return 100 * ((1 + BETA**2) * precision * recall / below.masked_fill(below == 0, 1))


def bleu(texts: Sequence[str]) -> Tensor:
    """Sentence BLEU [M, M] in percent, as sacreBLEU's `sentence_bleu`: of text i with text j as its reference.

    Of words, or of characters in scripts without spaces between words.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.helpers import extract_all_word_ngrams
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from sacrebleu.tokenizers.tokenizer_char import TokenizerChar

    tokenize = TokenizerChar() if are_unspaced(texts) else Tokenizer13a()
    counts = [extract_all_word_ngrams(tokenize(text.rstrip()), 1, WORD_ORDER) for text in texts]  # n-grams, length
    by_order = [
        _matches([{ngram: n for ngram, n in own.items() if len(ngram) == order} for own, _ in counts])
        for order in range(1, WORD_ORDER + 1)
    ]
    matches = torch.stack([found for found, _ in by_order], 2).long().tolist()
    totals = torch.stack([sizes for _, sizes in by_order], 1).long().tolist()
    compute: Any = partial(BLEU.compute_bleu, smooth_method="exp", effective_order=True)
    scores = [
        [
            compute(list(own), list(total), sys_len=length, ref_len=other).score
            for own, (_, other) in zip(row, counts, strict=True)
        ]
        for row, total, (_, length) in zip(matches, totals, counts, strict=True)
    ]
    return torch.tensor(scores, dtype=torch.float64).view(len(texts), -1)


UTILITIES: Mapping[str, Callable[[Sequence[str]], Tensor]] = MappingProxyType({"chrf": chrf, "bleu": bleu})


def _matches(counts: Sequence[Mapping[Any, int]]) -> tuple[Tensor, Tensor]:
    """Common n-grams of each pair [M, M], and n-grams of each text [M], from the counts of one order."""
    places: dict[tuple[Hashable, int], int] = {}
    rows, columns = [], []
    for row, own in enumerate(counts):
        for ngram, count in own.items():
            for occurrence in range(count):
                rows.append(row)
                columns.append(places.setdefault((ngram, occurrence), len(places)))
    there = torch.zeros(len(counts), max(1, len(places)))
    there[rows, columns] = 1.0
    return (there @ there.t()).double(), there.sum(1).double()
