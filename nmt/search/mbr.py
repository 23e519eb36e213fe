"""Minimum Bayes risk: of some candidates the translation that is most like all of them.

How well each would do if each other one were the reference, is sacreBLEU's chrF and BLEU of sentences, with the
n-grams of each translation counted once: M translations have M * M pairs. The k-th occurrence of an n-gram is a feature
of its own, so that the matches of all pairs are one product of matrices of zeros and ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import torch
from torch import Tensor

from nmt.data.matching import are_unspaced
from nmt.light.options import OPTIONS
from nmt.registry import SEARCHES
from nmt.search.base import Search, Settings
from nmt.search.beam import by_beam
from nmt.search.ruled import RuledModel
from nmt.search.sample import SampleOptions, by_sampling
from nmt.search.values import Hypothesis, penalty_of

if TYPE_CHECKING:
    from nmt.config.schema import DecodingConfig

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
    counts: list[list[dict[Hashable, int]]] = []
    lengths = []
    for text in texts:
        ngrams, length = extract_all_word_ngrams(tokenize(text.rstrip()), 1, WORD_ORDER)
        own: list[dict[Hashable, int]] = [{} for _ in range(WORD_ORDER)]
        for ngram, count in ngrams.items():
            own[len(ngram) - 1][ngram] = count
        counts.append(own)
        lengths.append(length)
    by_order = [_matches([own[order] for own in counts]) for order in range(WORD_ORDER)]
    matches = torch.stack([found for found, _ in by_order], 2).long().tolist()
    totals = torch.stack([sizes for _, sizes in by_order], 1).long().tolist()

    def of_pair(i: int, j: int) -> float:
        found: Any = BLEU.compute_bleu(
            list(matches[i][j]),
            list(totals[i]),
            sys_len=lengths[i],
            ref_len=lengths[j],
            smooth_method="exp",
            effective_order=True,
        )
        return float(found.score)

    places = range(len(texts))
    return torch.tensor([[of_pair(i, j) for j in places] for i in places], dtype=torch.float64).view(len(texts), -1)


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


@dataclass(frozen=True, kw_only=True)
class MbrOptions(SampleOptions):
    """Options of `mbr`, those of `sample` among them, with which samples are drawn."""

    candidates: Literal["sample", "beam"] = "sample"
    """Samples of the model, each of the same weight, or the hypotheses of a beam, by their probabilities."""
    number: int = 32
    """Number of samples of a sentence, or width of the beam; beam_size is not used."""
    utility: Literal["chrf", "bleu"] = "chrf"
    """What a candidate is compared with the others by: sacreBLEU's chrF2 or BLEU of sentences, in scripts without
    spaces of characters."""

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
    accepts = frozenset({"decode"})

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
            found = by_sampling(model, source, every, options=options)
            weights = [[1.0] * len(candidates) for candidates in found]
        else:
            found = by_beam(model, source, replace(settings, beam_size=options.number, n_best=None))
            weights = [_probabilities(candidates, length_penalty=settings.length_penalty) for candidates in found]
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


def _probabilities(candidates: Sequence[Hypothesis], *, length_penalty: float) -> list[float]:
    """Relative weights of the hypotheses of a beam; the largest is 1."""
    totals = [one.score * penalty_of(len(one.ids) + one.has_ended, length_penalty) for one in candidates]
    best = max(totals)
    return [math.exp(total - best) if total > -math.inf else 0.0 for total in totals]
