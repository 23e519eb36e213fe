"""The words of a text, as the tokenizer of BLEU cuts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nmt.evaluation import build_metric


class Words:
    """Cuts lines as `bleu` does with the same options."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """`options` are those of the metric `bleu`."""
        scorer = build_metric("bleu", options).scorer()
        assert scorer is not None
        self._scorer = scorer

    def of(self, lines: Iterable[str]) -> list[list[str]]:
        """The words of each line."""
        return list(self.each(lines))

    def each(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """The same, one line after the other."""
        return (self._scorer._preprocess_segment(line).split() for line in lines)
