"""How well each of some translations of a sentence would do if each other one were the reference.

sacreBLEU's chrF and BLEU of sentences, with the n-grams of each translation counted once: M translations have M * M
pairs. The k-th occurrence of an n-gram is a feature of its own, so that the matches of all pairs are one product of
matrices of zeros and ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor

from nmt.data.matching import are_unspaced

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
