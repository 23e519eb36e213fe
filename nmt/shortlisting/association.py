"""Association of target tokens with source tokens, counted over the sentence pairs of a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

PIECE = 20_000
"""Sentence pairs whose co-occurrences are counted at once."""
MOST = 50_000_000
"""Token pairs kept (16 bytes each, two to three times that while counting); beyond it the rarest are forgotten."""


class CoOccurrences:
    """In how many sentence pairs each token, and each pair of a source and a target token, occurs.

    A token counts once in a sentence. When there are more than `most` different token pairs, those
    seen least often so far are dropped, so that memory stays bounded; their counts are then too low.
    """

    def __init__(self, source_size: int, target_size: int, *, most: int = MOST) -> None:
        self.source_counts = np.zeros(source_size, np.int64)
        self.target_counts = np.zeros(target_size, np.int64)
        self.sentences = 0
        self._most = most
        self._pairs = np.empty(0, np.int64)  # source id * target_size + target id, ascending
        self._counts = np.empty(0, np.int64)

    def add(self, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
        """Count sentence pairs in ids."""
        found = []
        for source, target in pairs:
            self.sentences += 1
            left, right = np.unique(np.asarray(source, np.int64)), np.unique(np.asarray(target, np.int64))
            self.source_counts[left] += 1
            self.target_counts[right] += 1
            found.append((left[:, None] * len(self.target_counts) + right).ravel())
            if len(found) == PIECE:
                self._merge(found)
                found = []
        self._merge(found)

    def _merge(self, found: list[NDArray[np.int64]]) -> None:
        if not found:
            return
        new, new_counts = np.unique(np.concatenate(found), return_counts=True)
        pairs, places = np.unique(np.concatenate([self._pairs, new]), return_inverse=True)
        counts = np.bincount(places, weights=np.concatenate([self._counts, new_counts]), minlength=len(pairs))
        least = 1
        while len(pairs) > self._most:
            kept = counts > least
            pairs, counts, least = pairs[kept], counts[kept], least + 1
        self._pairs, self._counts = pairs, counts.astype(np.int64)

    def most_frequent(self, number: int) -> Ids:
        """The `number` target ids that occur in most sentences, ascending; of equal ones the smaller ids."""
        order = np.argsort(-self.target_counts, kind="stable")
        return np.sort(order[:number]).astype(np.int32)

    def best_partners(self, number: int) -> tuple[Ids, Any]:
        """For each source id, the `number` target ids with the highest Dice's coefficient.

        2 c(s, t) / (c(s) + c(t)), with counts of sentences; of equal ones the smaller ids.

        Returns:
            The target ids of all source ids one after the other, ascending within each, and where
            those of each source id begin [source_size + 1], int64.
        """
        sources, targets = np.divmod(self._pairs, len(self.target_counts))
        dice = 2.0 * self._counts / (self.source_counts[sources] + self.target_counts[targets])
        order = np.lexsort((targets, -dice, sources))  # the last key counts most
        sources = sources[order]
        rank = np.arange(len(order)) - np.searchsorted(sources, sources)
        chosen = np.sort(self._pairs[order[rank < number]])
        sources, targets = np.divmod(chosen, len(self.target_counts))
        starts = np.searchsorted(sources, np.arange(len(self.source_counts) + 1))
        return targets.astype(np.int32), starts.astype(np.int64)
