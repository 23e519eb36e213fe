"""Validation: the loss of the development corpus, and metrics of its real translations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from nmt.data import PAD, Corpus, collate
from nmt.data.sampling import Rows
from nmt.evaluation import Metric
from nmt.models.base import Seq2Seq

LOSS_BATCH_TOKENS = 4096
"""Cells of a target batch in which the loss is computed."""

Check = Callable[[], None]
"""Called often; raises an exception to break off."""


@dataclass(frozen=True)
class Validation:
    """What one validation gave."""

    scores: dict[str, float]
    """`loss`, in nats for each target token, and one for each metric."""
    signatures: dict[str, str] = field(default_factory=dict)
    """sacreBLEU's signature of each metric."""
    samples: list[dict[str, str]] = field(default_factory=list)
    """`source`, `reference` and `translation` of some sentences."""
    seconds: float = 0.0


class Translate(Protocol):
    """Translates lines of text with the model given, in order."""

    def __call__(self, model: Seq2Seq, lines: Sequence[str]) -> Iterator[str]: ...


@dataclass(frozen=True, kw_only=True)
class Validator:
    """The development corpus and what is measured on it."""

    corpus: Corpus
    """Encoded pairs, for the loss."""
    sources: Sequence[str]
    """Raw lines, all of them, the empty ones too."""
    references: Sequence[str]
    """Raw lines, not tokenised."""
    metrics: Sequence[Metric]
    translate: Translate
    device: torch.device
    max_sentences: int | None = None
    """Translate only the first so many lines."""
    samples: int = 0

    def validate(self, model: Seq2Seq, *, check: Check) -> Validation:
        """Measure `model`, which must be in evaluation mode."""
        started = time.monotonic()
        scores = {"loss": corpus_loss(model, self.corpus, device=self.device, check=check)}
        signatures: dict[str, str] = {}
        samples: list[dict[str, str]] = []
        if self.metrics:
            hypotheses = self._translations(model, check=check)
            references = self.references[: len(hypotheses)]
            for metric in self.metrics:
                result = metric.compute(hypotheses, [references])
                scores[metric.name] = result.score
                signatures[metric.name] = f"{result.name} {result.signature}"
            samples = self._samples(hypotheses)
        return Validation(scores, signatures, samples, round(time.monotonic() - started, 3))

    def _translations(self, model: Seq2Seq, *, check: Check) -> list[str]:
        translations = []
        for translation in self.translate(model, self.sources[: self.max_sentences]):
            check()
            translations.append(translation)
        return translations

    def _samples(self, hypotheses: Sequence[str]) -> list[dict[str, str]]:
        """Sentences spread evenly over the corpus, the same ones at each validation."""
        if not self.samples:
            return []
        shown = sorted({round(place) for place in np.linspace(0, len(hypotheses) - 1, self.samples + 2)[1:-1]})
        return [
            {"source": self.sources[row], "reference": self.references[row], "translation": hypotheses[row]}
            for row in shown
        ]


@torch.no_grad()
def corpus_loss(model: Seq2Seq, corpus: Corpus, *, device: torch.device, check: Check) -> float:
    """Mean negative log-likelihood of a target token (end symbols counted), not smoothed, in nats."""
    total, tokens = 0.0, 0
    for rows in rows_by_length(corpus, cells=LOSS_BATCH_TOKENS):
        check()
        batch = collate(corpus, rows)
        losses = model.token_losses(batch.source.to(device), batch.target.to(device), label_smoothing=0.0)
        total += float(losses.double().sum())
        tokens += int((batch.target != PAD).sum())
    return total / tokens


def rows_by_length(corpus: Corpus, *, cells: int) -> Iterator[Rows]:
    """All rows of a corpus, sorted by length, in batches of at most `cells` target positions or one sentence."""
    lengths = np.maximum(np.asarray(corpus.source_lengths), np.asarray(corpus.target_lengths))
    order = np.argsort(lengths, kind="stable")
    first = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - first) * lengths[order[end]] > cells:
            yield order[first:end]
            first = end
