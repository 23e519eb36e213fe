"""Loss and scores of the labels that a classifier gives to texts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nmt.data.classification.corpus import ClassifiedCorpus
from nmt.data.classification.records import Record
from nmt.data.progress import Advance, no_progress
from nmt.models.classifier import FIRST_LABEL
from nmt.tasks.classification.predicting import measure
from nmt.tasks.classification.scores import Confusion
from nmt.training.distributed import World
from nmt.training.validation import Check, Validation


@dataclass(frozen=True, kw_only=True)
class ClassifiedText:
    """Records with labels, as they are and encoded."""

    records: Sequence[Record]
    corpus: ClassifiedCorpus
    labels: Sequence[str]
    """All that there are."""
    unlabelled: int = 0
    """Lines that have been left out, because they have no label."""
    blank: int = 0
    """The same, because they are blank."""

    def compare(self, labels: Sequence[int]) -> Confusion:
        """With predicted labels of all records, counted from 0."""
        return Confusion.of((self.corpus.labels - FIRST_LABEL).tolist(), labels, labels=self.labels)


@dataclass(frozen=True, kw_only=True)
class ClassValidator:
    """The validation text, which several processes share."""

    text: ClassifiedText
    device: torch.device
    world: World

    @property
    def key(self) -> str:
        return self.text.corpus.key

    @property
    def lines(self) -> int:
        return 0

    def validate(self, model: Any, *, check: Check, translated: Advance = no_progress) -> Validation:
        """As `nmt.training.task.Validates`."""
        started = time.monotonic()
        found = measure(model, self.text.corpus, device=self.device, world=self.world, check=check)
        scores = {"loss": found.loss, **self.text.compare(found.labels).scores}
        (seconds,) = self.world.from_main([round(time.monotonic() - started, 3)])
        return Validation(scores, seconds=seconds)
