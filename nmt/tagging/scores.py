"""Precision, recall and F1 of spans as conlleval has them, and of words as the SIGHAN scorer has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nmt.tagging.schemes import Span


class F1(NamedTuple):
    """Three scores, in percent; 0 where there is nothing to divide by."""

    f1: float
    precision: float
    recall: float


def f1(*, right: int, wanted: int, found: int) -> F1:
    """Scores from the numbers of correct, reference and predicted spans."""
    precision = 100 * right / found if found else 0.0
    recall = 100 * right / wanted if wanted else 0.0
    both = precision + recall
    return F1(2 * precision * recall / both if both else 0.0, precision, recall)


@dataclass
class SpanCounts:
    """Spans by their kinds: a predicted span is correct if beginning, end and kind match a reference span."""

    right: Counter[str] = field(default_factory=Counter)
    wanted: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    new: int = 0
    """Words of the reference that the training text has not."""
    new_right: int = 0

    def add(
        self, wanted: Sequence[Span], found: Sequence[Span], *, tokens: Sequence[str] = (), known: Collection[str] = ()
    ) -> None:
        """Count a sentence. With `known`, the words of the training text, spans of `tokens` are words."""
        right = set(wanted) & set(found)
        self.right.update(span.kind for span in right)
        self.wanted.update(span.kind for span in wanted)
        self.found.update(span.kind for span in found)
        if known:
            unseen = [span for span in wanted if "".join(tokens[span.first : span.end]) not in known]
            self.new += len(unseen)
            self.new_right += sum(span in right for span in unseen)

    @property
    def overall(self) -> F1:
        """Scores of all kinds together."""
        return f1(right=self.right.total(), wanted=self.wanted.total(), found=self.found.total())

    @property
    def by_kind(self) -> dict[str, F1]:
        """Scores of each kind in the reference or the predictions."""
        kinds = sorted({*self.wanted, *self.found})
        return {kind: f1(right=self.right[kind], wanted=self.wanted[kind], found=self.found[kind]) for kind in kinds}

    @property
    def new_recall(self) -> float | None:
        """Recall of words that the training text has not, in percent; None where there are none."""
        return 100 * self.new_right / self.new if self.new else None
