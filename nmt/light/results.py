"""Results of translation, plain values that can be pickled, and how they are made of what the engine holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .binding import UNK

if TYPE_CHECKING:
    from .binding import Model, Results


@dataclass(frozen=True)
class Request:
    """A sentence, and what its translation must begin with and must not contain."""

    text: str
    prefix: str = ""
    """With a space at its end its last word is complete."""
    forbidden: str | Sequence[str] = ()
    """Phrases, as words or sequences of words."""


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence."""

    text: str
    """A single line; empty where there is no translation."""
    score: float
    """Log-probability divided by the length penalty, at most 0; higher is better. 0 for an empty sentence, -infinity if
    no translation has a finite probability, NaN if scores are switched off."""
    tokens: tuple[str, ...] | None = field(default=None, repr=False)
    """With `details=["tokens"]`: as the model wrote them, the end symbol counted where it has ended."""
    token_scores: tuple[float, ...] | None = field(default=None, repr=False)
    """With `details=["scores"]`: the log-probability of each token, those before it given."""
    attention_of_parts: tuple[Any, ...] | None = field(default=None, repr=False, compare=False)
    """With `details=["attention"]`: of each part in which the line was translated, such as a sentence, weights over its
    source tokens when each token was written [T, S], by `nmt.load` an array of NumPy, by `nmt_light` a list for each
    token."""
    alignment: tuple[tuple[int, int], ...] | None = field(default=None, repr=False)
    """With `details=["alignment"]`: pairs of a word of the source and one of `text`, from 0."""
    token_entropies: tuple[float, ...] | None = field(default=None, repr=False)
    """With `details=["entropies"]`: the entropy in nats of the distribution that each token is from, over the words
    of a shortlist where there is one."""
    heads_of_parts: tuple[dict[str, Any], ...] | None = field(default=None, repr=False, compare=False)
    """With `details=["heads"]`, by `nmt.load` of a run or a folder alone: of each part the attention of each attending
    layer by its name, arrays of NumPy [heads, T, S]; the mean over all heads of all layers is the attention. In an
    ensemble, names begin with the number of the model: `0.`."""

    @cached_property
    def attention(self) -> Any:
        """The attention over the source tokens of the whole line, 0 between parts; None if it was not asked for."""
        return None if self.attention_of_parts is None else _blocks(self.attention_of_parts)

    @cached_property
    def heads(self) -> Any:
        """The same of the attention of each head."""
        if not self.heads_of_parts:
            return None if self.heads_of_parts is None else {}
        of_layers = {name: [part[name] for part in self.heads_of_parts] for name in self.heads_of_parts[0]}
        return {
            name: [*map(_blocks, zip(*parts, strict=True))] if isinstance(parts[0], list) else _blocks(parts)
            for name, parts in of_layers.items()
        }


def _blocks(parts: Sequence[Any]) -> Any:
    """Matrices of parts, lists or arrays [..., T, S], as blocks of one, 0 elsewhere."""
    if len(parts) <= 1:
        return parts[0] if parts else []
    widths = [part.shape[-1] if hasattr(part, "shape") else len(part[0]) if part else 0 for part in parts]
    starts = [0, *accumulate(widths)]
    if isinstance(parts[0], list):
        return [
            [0.0] * start + list(row) + [0.0] * (starts[-1] - start - width)
            for part, start, width in zip(parts, starts, widths, strict=False)
            for row in part
        ]
    rows = sum(part.shape[-2] for part in parts)
    whole = type(parts[0])((*parts[0].shape[:-2], rows, starts[-1]), parts[0].dtype)  # of NumPy, not imported here
    whole.fill(0)
    row = 0
    for part, start, width in zip(parts, starts, widths, strict=False):
        whole[..., row : row + part.shape[-2], start : start + width] = part
        row += part.shape[-2]
    return whole


@dataclass(frozen=True)
class Result:
    """The result for one sentence; `str()` of it is the best translation."""

    source: str
    """The sentence, as it was given."""
    n_best: list[Hypothesis] = field(repr=False)
    """Best first, one at least; as many as `n_best` asked for, if the search found so many."""
    source_tokens: int = field(default=0, repr=False)
    """Tokens that the model read, the end symbol not counted."""
    unknown: int = field(default=0, repr=False)
    """How many of these tokens are not in the vocabulary."""
    source_pieces: tuple[str, ...] | None = field(default=None, repr=False)
    """Where tokens or attention were asked for, the source tokens as the model read them, the end symbol counted."""
    notes: tuple[str, ...] = field(default=(), repr=False)
    """Notes, in the words of `nmt-translate --format jsonl`: `split`, `several_sentences`, `capitals`,
    `no_finite_translation`, `length_limit`, `longer_than_training`, `required_missing`, `unlike_training`."""
    confidence: float | None = field(default=None, repr=False)
    """With `details=["confidence"]`: that the best translation is good, by nmt-confidence; None for an empty line."""

    @property
    def best(self) -> Hypothesis:
        """The best translation."""
        return self.n_best[0]

    @property
    def text(self) -> str:
        """The best translation, a single line."""
        return self.best.text

    @property
    def score(self) -> float:
        """Its score, see `Hypothesis.score`."""
        return self.best.score

    @property
    def tokens(self) -> tuple[str, ...] | None:
        """Those of the best translation, see `Hypothesis.tokens`; the same for those below."""
        return self.best.tokens

    @property
    def token_scores(self) -> tuple[float, ...] | None:
        """See `Hypothesis.token_scores`."""
        return self.best.token_scores

    @property
    def attention(self) -> Any:
        """See `Hypothesis.attention`."""
        return self.best.attention

    @property
    def alignment(self) -> tuple[tuple[int, int], ...] | None:
        """See `Hypothesis.alignment`."""
        return self.best.alignment

    @property
    def token_entropies(self) -> tuple[float, ...] | None:
        """See `Hypothesis.token_entropies`."""
        return self.best.token_entropies

    @property
    def heads(self) -> Any:
        """See `Hypothesis.heads`."""
        return self.best.heads

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        notes = f", notes={self.notes!r}" if self.notes else ""
        others = f", n_best={len(self.n_best)}" if len(self.n_best) > 1 else ""
        return f"Result({self.text!r}, score={self.score:.4f}{others}{notes})"


@dataclass(frozen=True)
class PairScore:
    """The score of a given translation by the model."""

    score: float
    """Mean log-probability of the target's tokens in nats, end symbol included; at most 0, higher is better."""
    tokens: int
    """Tokens of the target, end symbol included."""
    unknown: int
    """How many of them are not in the vocabulary; they are scored as unknown words."""
    source_tokens: int = 0
    """Tokens of the source, the end symbol not counted."""
    has_empty_side: bool = field(default=False, repr=False, compare=False)
    """Of nmt.search: an empty side is the end symbol alone; the model has an opinion on it as on anything else."""

    @property
    def mean_nll(self) -> float:
        """Mean negative log-probability, as nmt-score prints it."""
        return -self.score

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-probability; infinite on overflow."""
        return math.exp(self.mean_nll) if not self.mean_nll >= 700 else math.inf


def collected(model: Model, found: Results, place: int, line: str, details: Sequence[str]) -> Result:
    """The result of `line`, which is at `place`; `details` as in `Translator.translate`."""
    sources = found.sources(place)
    wants_pieces = not {"tokens", "attention"}.isdisjoint(details)
    return Result(
        line,
        [_hypothesis(model, found, place, i, len(sources), details) for i in range(found.translations(place))],
        source_tokens=sum(len(source) - 1 for source in sources),
        unknown=found.unknown(place),
        source_pieces=tuple(_pieces(model, sources, target=False)) if wants_pieces else None,
        notes=tuple(found.notes(place)),
    )


def scored(found: Results) -> list[PairScore]:
    """The scores of given translations."""
    scores = []
    for place in range(found.count):
        (source,), ids, log_probs = found.sources(place), found.ids(place, 0, 0), found.log_probs(place, 0, 0)
        scores.append(PairScore(math.fsum(log_probs) / len(ids), len(ids), ids.count(UNK), len(source) - 1))
    return scores


def _hypothesis(model: Model, found: Results, place: int, i: int, count: int, details: Sequence[str]) -> Hypothesis:
    score = found.score(place, i)
    parts = range(count) if score > -math.inf or math.isnan(score) else range(0)
    tokens = [found.ids(place, i, part) for part in parts] if details else []
    of_tokens = {"scores": found.log_probs, "entropies": found.entropies}
    told = {
        name: tuple(value for part in parts for value in read(place, i, part)) if name in details else None
        for name, read in of_tokens.items()
    }
    return Hypothesis(
        found.text(place, i),
        score,
        tuple(_pieces(model, tokens, target=True)) if "tokens" in details else None,
        told["scores"],
        tuple(found.attention(place, i, part) for part in parts) if "attention" in details else None,
        found.alignment(place, i) if "alignment" in details else None,
        told["entropies"],
    )


def _pieces(model: Model, parts: Iterable[list[int]], *, target: bool) -> Iterator[str]:
    return (model.piece(token, target=target) for part in parts for token in part)
