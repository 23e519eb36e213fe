"""Choice of the translations of a line for training text: the best, all n, or the one nearest to the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final, Protocol

from nmt.data.matching import are_unspaced
from nmt.data.vocabulary import EOS, PAD, SPECIAL_TOKENS
from nmt.search.values import AT_LIMIT

_NO_WORDS: Final = frozenset({SPECIAL_TOKENS[PAD], SPECIAL_TOKENS[EOS]})


class Found(Protocol):
    """A translation, of the search or of the library."""

    @property
    def text(self) -> str:
        """As people read it."""

    @property
    def tokens(self) -> tuple[str, ...] | None:
        """As the model wrote it, if that was asked for."""


@dataclass(frozen=True)
class Made:
    """What a model has made of a line."""

    texts: Sequence[str]
    """As people read them, best first, one at least; a single empty one where there is none."""
    written: Sequence[str]
    """The same as training text: split at spaces where the tokenizer wants that."""
    notes: Sequence[str]
    """In the words of `nmt-translate --format jsonl`."""
    source_tokens: int
    """Tokens that the model has read; 0 for an empty line."""


def made(found: Sequence[Found], *, notes: Sequence[str], source_tokens: int, as_tokens: bool) -> Made:
    """What was found for a line; `as_tokens`: training text is tokens, with spaces between them."""
    texts = [one.text for one in found]
    if not as_tokens:
        return Made(texts, texts, notes, source_tokens)
    written = [" ".join(token for token in one.tokens or () if token not in _NO_WORDS) for one in found]
    return Made(texts, written, notes, source_tokens)


def chosen(made: Made, reference: str | None, *, n_best: int, nearest: str | None) -> list[str]:
    """The training text made of a line: `n_best` lines, empty ones where there are fewer translations.

    With `nearest`, a name of SIMILARITIES, one line: the translation that is most like the reference (Kim and Rush,
    EMNLP 2016, section 3.3), of equals the best by the model; without a reference the best.

    Empty lines for one whose best translation was cut at the length limit: most of those repeat a word to their end,
    and a student would learn to do so.
    """
    if AT_LIMIT in made.notes:
        return [""] * (n_best if nearest is None else 1)
    if nearest is None:
        return [*made.written[:n_best], *[""] * (n_best - len(made.written))]
    if reference is None or not reference.strip() or len(made.texts) == 1:
        return [made.written[0]]
    similarity = SIMILARITIES[nearest](are_unspaced([reference]))
    scores = {text: similarity(text, reference) for text in dict.fromkeys(made.texts)}
    return [made.written[made.texts.index(max(scores, key=scores.__getitem__))]]


Similarity = Callable[[str, str], float]
"""From a translation and a reference, in percent."""


@cache
def _bleu(unspaced: bool) -> Similarity:
    """sacreBLEU's BLEU of sentences, without orders that a short one cannot have; where no spaces tell words apart, of
    characters."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True, tokenize="char" if unspaced else "13a")
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)


@cache
def _chrf(unspaced: bool) -> Similarity:
    """sacreBLEU's chrF2."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    return lambda text, reference: float(metric.sentence_score(text, [reference]).score)


SIMILARITIES: Final[Mapping[str, Callable[[bool], Similarity]]] = MappingProxyType({"bleu": _bleu, "chrf": _chrf})
