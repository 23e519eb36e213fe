"""Accuracy, and precision, recall and F1 of each label, from how often each was predicted for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_CORNER = "correct / predicted"


class OfLabel(NamedTuple):
    """Of one label, in percent; 0 where there is nothing to divide by."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Confusion:
    """How often each label was predicted for each."""

    labels: Sequence[str]
    counts: NDArray[np.int64]
    """[K, K], from the right label (row) to the predicted one (column)"""

    @classmethod
    def of(cls, wanted: Sequence[int], found: Sequence[int], *, labels: Sequence[str]) -> Confusion:
        """`wanted` and `found` [N] count the labels from 0."""
        counts = np.zeros((len(labels), len(labels)), np.int64)
        np.add.at(counts, (np.asarray(wanted, np.int64), np.asarray(found, np.int64)), 1)
        return cls(labels, counts)

    @classmethod
    def of_pairs(cls, pairs: Mapping[tuple[str, str], int], *, labels: Sequence[str]) -> Confusion:
        """How often each pair of a right and a predicted label came."""
        counts = np.array([[pairs.get((right, found), 0) for found in labels] for right in labels], np.int64)
        return cls(labels, counts)

    @property
    def texts(self) -> int:
        """How many have been counted."""
        return int(self.counts.sum())

    @property
    def accuracy(self) -> float:
        """Share of right labels, in percent."""
        return _percent(self.counts.trace(), self.texts)

    @property
    def by_label(self) -> dict[str, OfLabel]:
        """Scores of each label that the reference or a prediction has."""
        found = {}
        for i, label in enumerate(self.labels):
            wanted, predicted, right = self.counts[i].sum(), self.counts[:, i].sum(), self.counts[i, i]
            if wanted or predicted:
                f1 = _percent(2 * right, wanted + predicted)
                found[label] = OfLabel(_percent(right, predicted), _percent(right, wanted), f1)
        return found

    @property
    def macro_f1(self) -> float:
        """Mean of the F1 of these labels, in percent."""
        scores = [own.f1 for own in self.by_label.values()]
        return float(np.mean(scores)) if scores else 0.0

    @property
    def scores(self) -> dict[str, float]:
        """What validation measures."""
        return {"accuracy": self.accuracy, "macro_f1": self.macro_f1}

    def lines(self) -> list[str]:
        """Scores of each label and the counts, for people."""
        width = max(map(len, self.labels))
        lines = [
            f"  {label:<{width}}  precision {own.precision:6.2f}  recall {own.recall:6.2f}  f1 {own.f1:6.2f}"
            for label, own in self.by_label.items()
        ]
        columns = [max(len(label), len(f"{self.counts.max():,}")) for label in self.labels]
        names = "  ".join(f"{label:>{size}}" for label, size in zip(self.labels, columns, strict=True))
        width = max(width, len(_CORNER))
        lines.append(f"  {_CORNER:<{width}}  {names}")
        for label, row in zip(self.labels, self.counts.tolist(), strict=True):
            numbers = "  ".join(f"{count:>{size},}" for count, size in zip(row, columns, strict=True))
            lines.append(f"  {label:<{width}}  {numbers}")
        return lines


def _percent(part: int, whole: int) -> float:
    return 100 * float(part) / float(whole) if whole else 0.0
