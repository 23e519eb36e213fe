"""Loss and scores of the labels that a classifier gives to texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nmt.classification.corpus import ClassifiedCorpus
from nmt.classification.model import FIRST_LABEL
from nmt.classification.predicting import measure
from nmt.classification.records import Record
from nmt.classification.scores import Confusion
from nmt.training.validation import SURE_OF_LABELS, Chance, Check, ScoreValidator, chance_of


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
class ClassValidator(ScoreValidator):
    """The validation text, which several processes share."""

    text: ClassifiedText

    @property
    def key(self) -> str:
        return self.text.corpus.key

    def scores(self, model: Any, *, check: Check) -> tuple[dict[str, float], Chance | None]:
        found = measure(model, self.text.corpus, device=self.device, world=self.world, check=check)
        scores = {"loss": found.loss, **self.text.compare(found.labels).scores}

        def shuffled(places: Sequence[int]) -> float:
            return self.text.compare([found.labels[place] for place in places]).macro_f1

        alike = len(set(self.text.corpus.labels.tolist())) < 2
        return scores, None if alike else chance_of("macro_f1", shuffled, lines=len(found.labels), sure=SURE_OF_LABELS)
