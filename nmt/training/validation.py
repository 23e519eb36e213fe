"""Validation: the loss of the development corpus, metrics of its real translations."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from nmt.data.batching import Pairs, collate
from nmt.data.corpus import Corpus, Rows
from nmt.data.sampler import HasLengths
from nmt.data.work import Advance, no_progress
from nmt.evaluation import Metric
from nmt.light.counts import Noted
from nmt.models.base import Seq2Seq
from nmt.registry import DOUBTS
from nmt.search.values import Translation
from nmt.training.distributed import World, interleave
from nmt.training.state import InterruptedValidationError

T = TypeVar("T")
LOSS_BATCH_TOKENS = 4096
"""Cells of a target batch in which the loss is computed."""

BatchLoss = tuple[float, int]
"""Sum of the losses of a batch's tokens, in nats, and how many they are."""
Translate = Callable[[Seq2Seq, Sequence[str]], Iterator[Translation]]
"""Translates lines of text with the model given, in order."""
Check = Callable[[], None]
"""Called often; raises InterruptedValidationError to break off."""


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
    translations: Sequence[str] = ()
    """The translations of all lines, in order; only in the process that writes the log."""
    faults: Faults = field(default_factory=lambda: Faults(()))
    """Of these."""
    chance: Chance | None = None
    """Whether the output has to do with its source, where that can be told."""


class Chance(NamedTuple):
    """Whether what a model gives has to do with its sources: compared with its score beside the references of other
    lines, which is what a model reaches that has learned the target language alone, or nothing."""

    metric: str
    score: float
    """Mean over several shuffles of the lines."""
    is_beaten: bool
    """Whether the score beside their own references is better, and not by luck."""


class Found(NamedTuple):
    """What validation needs of a translation; travels from process to process."""

    text: str
    is_finite: bool
    has_ended: bool


class Faults:
    """Lines without a finite hypothesis, so that their translations are empty, and lines cut by the limit of length."""

    def __init__(self, found: Iterable[Found]) -> None:
        not_finite, at_limit = Noted(), Noted()
        for number, (_, is_finite, has_ended) in enumerate(found, start=1):
            if not is_finite:
                not_finite.add(number)
            if not has_ended:
                at_limit.add(number)
        self.counts = {"not_finite": not_finite.count, "length_limit": at_limit.count}
        """For log.jsonl."""
        said = ((not_finite, "without a translation with a finite score"), (at_limit, "stopped at the length limit"))
        self.problems = [noted.said(what) for noted, what in said if noted]
        """For people, where there are any."""


def in_all_processes(world: World, work: Callable[[], T]) -> list[T]:
    """What `work` gives in each process, which JSON must hold; InterruptedValidationError in all if one raises it."""
    mine = None
    with contextlib.suppress(InterruptedValidationError):  # the others must hear of it
        mine = [work()]
    parts = [part for part in world.gather(mine) if part is not None]
    if len(parts) < world.size:
        raise InterruptedValidationError
    return [part for (part,) in parts]


@dataclass(frozen=True, kw_only=True)
class Validator:
    """The development corpus and what is measured on it."""

    corpus: Corpus
    """Encoded pairs, for the loss."""
    sources: Sequence[str]
    """Raw lines, all of them, the empty ones too."""
    references: Sequence[Sequence[str]]
    """One stream of raw lines, not tokenised, for each set of references."""
    metrics: Sequence[Metric]
    translate: Translate
    device: torch.device
    max_sentences: int | None = None
    """Translate only the first so many lines."""
    samples: int = 0
    ranked_by: str = "loss"
    """The metric of which chance is measured; the first one, if that is the loss."""
    world: World = field(default_factory=lambda: World(torch.device("cpu")))
    """The processes that share the work."""
    read_by: Callable[[Seq2Seq], Any] = lambda model: model
    """What computes the losses with a model."""

    @property
    def key(self) -> str:
        """Digest of the encoded corpus."""
        return self.corpus.key

    @property
    def lines(self) -> int:
        """How many lines this process translates."""
        return len(self._mine()) if self.metrics else 0

    def validate(self, model: Seq2Seq, *, check: Check, translated: Advance = no_progress) -> Validation:
        """Measure `model`, which must be in evaluation mode. All processes get the same result.

        `translated` is told how many more lines have been translated here.
        Raises InterruptedValidationError in all processes when `check` raises it in one.
        """
        started = time.monotonic()
        part = slice(self.world.rank, None, self.world.size)

        def mine() -> tuple[list[BatchLoss], list[Found]]:
            batches = list(rows_by_length(self.corpus, cells=LOSS_BATCH_TOKENS))[part]
            losses, found = batch_losses(self.read_by(model), self.corpus, batches, device=self.device, check=check), []
            for translation in self.translate(model, self._mine()) if self.metrics else ():
                check()
                translated(1)
                found.append(Found(translation.best, translation.is_finite, translation.has_ended))
            return losses, found

        whole = in_all_processes(self.world, mine)
        found = interleave([lines for _, lines in whole])
        hypotheses = [text for text, _, _ in found]
        scores = {"loss": mean_loss(interleave([losses for losses, _ in whole]))}
        signatures: dict[str, str] = {}
        samples: list[dict[str, str]] = []
        chance: Chance | None = None
        if self.metrics and self.world.is_main:
            references = [stream[: len(hypotheses)] for stream in self.references]
            for metric in self.metrics:
                result = metric.score(hypotheses, references, sources=self.sources[: len(hypotheses)])
                scores[metric.name] = result.score
                signatures[metric.name] = f"{result.name} {result.signature}"
            named = {metric.name: metric for metric in self.metrics}
            by = named.get(self.ranked_by, self.metrics[0])
            chance = DOUBTS.get("translated_by_chance")(by, hypotheses, references, self.sources)
            # Spread evenly over the corpus, the same ones at each validation, with the first references.
            shown = sorted({round(place) for place in np.linspace(0, len(hypotheses) - 1, self.samples + 2)[1:-1]})
            samples = [
                {"source": self.sources[row], "reference": self.references[0][row], "translation": hypotheses[row]}
                for row in shown
            ]
        seconds = round(time.monotonic() - started, 3)
        scores, signatures, samples, seconds, chance = self.world.from_main(
            (scores, signatures, samples, seconds, chance)
        )
        measured = Validation(scores, signatures, samples, seconds, chance=None if chance is None else Chance(*chance))
        if not self.world.is_main:
            return measured
        return dataclasses.replace(measured, translations=hypotheses, faults=Faults(found))

    def _mine(self) -> Sequence[str]:
        return self.sources[: self.max_sentences][self.world.rank :: self.world.size]


@torch.no_grad()
def batch_losses(
    model: Seq2Seq, corpus: Pairs, batches: Iterable[Rows], *, device: torch.device, check: Check
) -> list[BatchLoss]:
    """Negative log-likelihood of each batch's target tokens (end symbols counted), not smoothed, and their number."""
    found: list[BatchLoss] = []
    for rows in batches:
        check()
        batch = collate(corpus, rows)
        source, target, words, *_ = batch.to(device)
        losses = model.token_losses(source, target, words=words)
        found.append((float(losses.double().sum()), len(words)))
    return found


def mean_loss(losses: Sequence[BatchLoss]) -> float:
    """Mean over all tokens of all batches, which are added up in their order."""
    return sum(total for total, _ in losses) / sum(tokens for _, tokens in losses)


def rows_by_length(corpus: HasLengths, *, cells: int) -> Iterator[Rows]:
    """All rows of a corpus, sorted by length, in batches of at most `cells` target positions or one sentence."""
    lengths = np.maximum(np.asarray(corpus.source_lengths), np.asarray(corpus.target_lengths))
    order = np.argsort(lengths, kind="stable")
    first = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - first) * lengths[order[end]] > cells:
            yield order[first:end]
            first = end
